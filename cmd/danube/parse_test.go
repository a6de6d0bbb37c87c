package main

import (
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

func TestParsePosition(t *testing.T) {
	at := func(s string) int64 {
		v, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return v.UnixMilli()
	}
	for text, want := range map[string]protocol.Position{
		"latest":                    {Kind: protocol.Latest},
		"earliest":                  {Kind: protocol.Earliest},
		"0":                         {Kind: protocol.AtOffset},
		"12345678901234567890":      {Kind: protocol.AtOffset, Offset: 12345678901234567890},
		"-15m":                      {Kind: protocol.AtTime, Time: at("2026-01-31T11:45:00Z")},
		"-7d":                       {Kind: protocol.AtTime, Time: at("2026-01-24T12:00:00Z")},
		"2026-01-30T10:00:00Z":      {Kind: protocol.AtTime, Time: at("2026-01-30T10:00:00Z")},
		"2026-01-30T10:00:00.5Z":    {Kind: protocol.AtTime, Time: at("2026-01-30T10:00:00.5Z")},
		"2026-01-30T10:00:00+02:00": {Kind: protocol.AtTime, Time: at("2026-01-30T08:00:00Z")},
	} {
		if got, err := parsePosition(text, noon()); err != nil || got != want {
			t.Errorf("parsePosition(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "now", "-5", "15m", "2026-01-30", "1.5", "Latest", "-"} {
		if got, err := parsePosition(text, noon()); err == nil {
			t.Errorf("parsePosition(%q) = %+v, want an error", text, got)
		}
	}
}

func TestParseRange(t *testing.T) {
	if got, err := parseRange("100-199"); err != nil || got != (protocol.Range{From: 100, To: 200}) {
		t.Errorf("100-199 is %v, %v", got, err)
	}
	if got, err := parseRange("7-7"); err != nil || got != (protocol.Range{From: 7, To: 8}) {
		t.Errorf("7-7 is %v, %v", got, err)
	}
	for _, text := range []string{"", "5", "9-8", "a-b", "-", "1-18446744073709551615"} {
		if got, err := parseRange(text); err == nil {
			t.Errorf("parseRange(%q) = %v, want an error", text, got)
		}
	}
}
