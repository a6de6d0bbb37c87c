package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// parsePosition reads where to begin: latest, earliest, an offset, a time, or -15m for so long before now.
func parsePosition(s string, now time.Time) (protocol.Position, error) {
	switch s {
	case "latest":
		return protocol.Position{Kind: protocol.Latest}, nil
	case "earliest":
		return protocol.Position{Kind: protocol.Earliest}, nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		return protocol.Position{Kind: protocol.AtOffset, Offset: n}, nil
	}
	if ago, ok := strings.CutPrefix(s, "-"); ok {
		if d, err := settings.ParseDuration(ago); err == nil {
			return protocol.Position{Kind: protocol.AtTime, Time: now.Add(-d).UnixMilli()}, nil
		}
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return protocol.Position{Kind: protocol.AtTime, Time: t.UnixMilli()}, nil
	}
	return protocol.Position{}, fmt.Errorf("%q is no position: latest, earliest, an offset, a time like 2026-01-31T12:00:00Z, or -15m", s)
}

// formatPosition prints p as parsePosition reads it.
func formatPosition(p protocol.Position) string {
	switch p.Kind {
	case protocol.Latest:
		return "latest"
	case protocol.Earliest:
		return "earliest"
	case protocol.AtOffset:
		return strconv.FormatUint(p.Offset, 10)
	}
	return render.Time(p.Time)
}

// parseSubscriptionType reads a type of subscription.
func parseSubscriptionType(s string) protocol.SubscriptionType {
	for t := protocol.Exclusive; t <= protocol.KeyShared; t++ {
		if t.String() == s {
			return t
		}
	}
	return protocol.Exclusive
}

// parseProperties reads name=value pairs, in order, names repeated if they are.
func parseProperties(pairs []string) ([]batch.Property, error) {
	var props []batch.Property
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, fail.Usagef("--property %s: is not of the form name=value", p)
		}
		props = append(props, batch.Property{Name: name, Value: value})
	}
	return props, nil
}

// parseRange reads offsets A-B, both included, as [A, B+1).
func parseRange(s string) (protocol.Range, error) {
	a, b, ok := strings.Cut(s, "-")
	from, err1 := strconv.ParseUint(a, 10, 64)
	last, err2 := strconv.ParseUint(b, 10, 64)
	if !ok || err1 != nil || err2 != nil || last < from || last == math.MaxUint64 {
		return protocol.Range{}, fmt.Errorf("%q is no range of offsets (example: 100-199)", s)
	}
	return protocol.Range{From: from, To: last + 1}, nil
}

// completeAddress adds the default port to an address without one.
func completeAddress(addr string) (string, error) {
	host, port, err := net.SplitHostPort(addr)
	if addrErr, ok := errors.AsType[*net.AddrError](err); ok && addrErr.Err == "missing port in address" {
		return net.JoinHostPort(strings.Trim(addr, "[]"), "6650"), nil
	}
	if err != nil {
		return "", fmt.Errorf("%q is no address HOST:PORT", addr)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || host == "" {
		return "", fmt.Errorf("%q is no address HOST:PORT", addr)
	}
	return addr, nil
}
