package words

import (
	"math"
	"testing"
	"time"
)

// A forecast is in words, and there is none for what lies years ahead: a rate of
// a few bytes a second overflows what a time can hold.
func TestForecast(t *testing.T) {
	for seconds, want := range map[float64]string{
		0:                            "; full in less than a minute at the present rate",
		90:                           "; full in 1 minute at the present rate",
		(30 * time.Minute).Seconds(): "; full in 30 minutes at the present rate",
		(1319*time.Hour + 52*time.Minute).Seconds(): "; full in 55 days at the present rate",
		(5 * time.Hour).Seconds():                   "; full in 5 hours at the present rate",
		(364 * 24 * time.Hour).Seconds():            "; full in 364 days at the present rate",
		(366 * 24 * time.Hour).Seconds():            "",
		1e30:                                        "",
		math.Inf(1):                                 "",
		math.NaN():                                  "",
	} {
		if got := Forecast(seconds); got != want {
			t.Errorf("%v seconds: %q, want %q", seconds, got, want)
		}
	}
}
