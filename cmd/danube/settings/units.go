package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// The units of sizes; powers of ten are refused rather than guessed at.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseSize reads bytes: a whole number, or a number with KiB, MiB, GiB or TiB.
func ParseSize(s string) (int64, error) {
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

// FormatSize prints bytes with the largest unit that leaves a whole number.
func FormatSize(n int64) string {
	for _, u := range sizeUnits {
		if n != 0 && u.bytes > 1 && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// ParseDuration reads a time that is not negative: Go's units and d for days of 24 hours.
func ParseDuration(s string) (time.Duration, error) {
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

// FormatDuration prints d as ParseDuration reads it, without the zeros of time.Duration.
func FormatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// ParseCount reads a whole number that is not negative.
func ParseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is no whole number", s)
	}
	return n, nil
}
