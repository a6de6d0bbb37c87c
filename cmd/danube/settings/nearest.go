package settings

import "strings"

// Nearest is the candidate that a typing error most likely meant, "" if none is near.
func Nearest(given string, candidates []string) string {
	best, at := "", max(2, len(given)/3)+1
	for _, c := range candidates {
		d := editDistance(given, c)
		if strings.HasPrefix(c, given) && len(given) >= 3 {
			d = min(d, 1)
		}
		if d < at {
			best, at = c, d
		}
	}
	return best
}

// editDistance counts insertions, removals, changes and swaps of neighbours between a and b.
func editDistance(a, b string) int {
	before := make([]int, len(b)+1) // two rows up, for swaps
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
