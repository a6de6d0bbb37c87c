package settings

import (
	"testing"
	"time"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "512": 512, "512B": 512, "4KiB": 4096, "64MiB": 64 << 20, "20GiB": 20 << 30, "1TiB": 1 << 40, "1.5MiB": 3 << 19, "1 KiB": 1024,
		"9223372036854775807": 1<<63 - 1,
	} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("ParseSize(%q) = %d, %v, want %d", text, got, err, want)
		}
		if again, err := ParseSize(FormatSize(got)); err != nil || again != got {
			t.Errorf("%d is printed as %q and read as %d, %v", got, FormatSize(got), again, err)
		}
	}
	for _, text := range []string{"", "KiB", "-1", "4KB", "4k", "4 MB", "1e3", "0x10", "1.2.3", "9223372036854775808", "9999999TiB", "1KiBs", "∞"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("ParseSize(%q) = %d, want an error", text, got)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"0": 0, "0s": 0, "100ms": 100 * time.Millisecond, "90s": 90 * time.Second, "48h": 48 * time.Hour, "7d": 7 * 24 * time.Hour, "1h30m": 90 * time.Minute,
	} {
		got, err := ParseDuration(text)
		if err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v, want %v", text, got, err, want)
		}
		if again, err := ParseDuration(FormatDuration(got)); err != nil || again != got {
			t.Errorf("%v is printed as %q and read as %v, %v", got, FormatDuration(got), again, err)
		}
	}
	for _, text := range []string{"", "10", "-5s", "-1d", "d", "1.5d", "5 minutes", "99999999999d"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("ParseDuration(%q) = %v, want an error", text, got)
		}
	}
}
