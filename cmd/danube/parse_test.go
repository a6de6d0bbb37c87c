package main

import (
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "512": 512, "512B": 512, "4KiB": 4096, "64MiB": 64 << 20, "20GiB": 20 << 30, "1TiB": 1 << 40, "1.5MiB": 3 << 19, "1 KiB": 1024,
		"9223372036854775807": 1<<63 - 1,
	} {
		got, err := parseSize(text)
		if err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
		if again, err := parseSize(formatSize(got)); err != nil || again != got {
			t.Errorf("%d is printed as %q and read as %d, %v", got, formatSize(got), again, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "4KB", "4k", "4 MB", "1e3", "0x10", "1.2.3", "9223372036854775808", "9999999TiB", "1KiBs", "∞"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("parseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "100ms": 100 * time.Millisecond, "90s": 90 * time.Second, "48h": 48 * time.Hour, "7d": 7 * 24 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		got, err := parseDuration(text)
		if err != nil || got != want {
			t.Errorf("parseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
		if again, err := parseDuration(formatDuration(got)); err != nil || again != got {
			t.Errorf("%v is printed as %q and read as %v, %v", got, formatDuration(got), again, err)
		}
	}
	for _, text := range []string{"", "10", "-5s", "-1d", "d", "1.5d", "5 minutes", "99999999999d"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("parseDuration(%q) = %v, want an error", text, got)
		}
	}
}

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

func TestNumbersForPeople(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 3300000: "3,300,000", -1234567: "-1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("grouped(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 3 << 30: "3.0 GiB"} {
		if got := roughSize(n); got != want {
			t.Errorf("roughSize(%d) = %q, want %q", n, got, want)
		}
	}
	if got := retention(7*24*3600*1000, 1<<30); got != "168h, 1GiB" {
		t.Errorf("retention is %q", got)
	}
	if got := retention(0, 0); got != "all" {
		t.Errorf("no retention is %q", got)
	}
}
