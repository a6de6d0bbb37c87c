package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// The units of sizes; powers of ten are refused rather than guessed at.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// parseSize reads bytes: a whole number, or a number with KiB, MiB, GiB or TiB.
func parseSize(s string) (int64, error) {
	number, unit := splitUnit(s)
	if number == "" {
		return 0, fmt.Errorf("%q is no size (examples: 512, 64KiB, 20GiB)", s)
	}
	scale := int64(0)
	for _, u := range sizeUnits {
		if unit == u.name || unit == "" && u.name == "B" {
			scale = u.bytes
		}
	}
	if scale == 0 {
		for _, u := range sizeUnits[:4] {
			if strings.EqualFold(unit, u.name) || strings.EqualFold(unit, u.name[:1]) || strings.EqualFold(unit, u.name[:1]+"B") {
				return 0, fmt.Errorf("%q has no unit %s; did you mean %s%s?", s, unit, number, u.name)
			}
		}
		return 0, fmt.Errorf("%q has no unit of size: KiB, MiB, GiB or TiB", s)
	}
	if whole, err := strconv.ParseInt(number, 10, 64); err == nil {
		if whole > math.MaxInt64/scale {
			return 0, fmt.Errorf("%q is too large", s)
		}
		return whole * scale, nil
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || f*float64(scale) >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is no size (examples: 512, 64KiB, 20GiB)", s)
	}
	return int64(f * float64(scale)), nil
}

// splitUnit cuts "64MiB" into "64" and "MiB"; the number is empty when there is none.
func splitUnit(s string) (number, unit string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	return s[:i], strings.TrimSpace(s[i:])
}

// formatSize prints bytes with the largest unit that leaves a whole number.
func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n != 0 && u.bytes > 1 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// roughSize prints bytes for a table: three digits and a unit.
func roughSize(n int64) string {
	for _, u := range sizeUnits[:4] {
		if n >= u.bytes {
			return strconv.FormatFloat(float64(n)/float64(u.bytes), 'f', 1, 64) + " " + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " B"
}

// parseDuration reads a time that is not negative: Go's units and d for days of 24 hours.
func parseDuration(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseInt(days, 10, 64); err == nil && n >= 0 && n <= math.MaxInt64/int64(24*time.Hour) {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is no duration (examples: 100ms, 30s, 48h, 7d)", s)
	}
	if d < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return d, nil
}

// formatDuration prints d as parseDuration reads it, without the zeros of time.Duration.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// parseCount reads a whole number that is not negative.
func parseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no whole number", s)
	}
	return n, nil
}

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
		if d, err := parseDuration(ago); err == nil {
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
	return formatTime(p.Time)
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

// subscriptionTypes is the words parseSubscriptionType knows.
func subscriptionTypes() []string {
	return []string{"exclusive", "shared", "failover", "key-shared"}
}

// parseProperties reads name=value pairs, in order, names repeated if they are.
func parseProperties(pairs []string) ([]batch.Property, error) {
	var props []batch.Property
	for _, p := range pairs {
		name, value, ok := strings.Cut(p, "=")
		if !ok || name == "" {
			return nil, usagef("--property %s: is not of the form name=value", p)
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

// atOffset is the position at an offset.
func atOffset(n uint64) protocol.Position {
	return protocol.Position{Kind: protocol.AtOffset, Offset: n}
}
