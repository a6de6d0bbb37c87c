package words

import "fmt"

// forecastMax is how far ahead the end of the disk is foretold, in seconds: the rate of a moment says nothing of years.
const forecastMax = 365 * 24 * 3600

// Forecast says when the disk is full by the seconds that are left of it, "" when that is too far off to be known.
func Forecast(seconds float64) string {
	if !(seconds <= forecastMax) { // nor what is no number
		return ""
	}
	left := "less than a minute"
	switch {
	case seconds >= 48*3600:
		left = fmt.Sprintf("%.0f days", seconds/(24*3600))
	case seconds >= 2*3600:
		left = fmt.Sprintf("%.0f hours", seconds/3600)
	case seconds >= 120:
		left = fmt.Sprintf("%.0f minutes", seconds/60)
	case seconds >= 60:
		left = "1 minute"
	}
	return "; full in " + left + " at the present rate"
}
