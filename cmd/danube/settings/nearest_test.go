package settings

import "testing"

func TestNearest(t *testing.T) {
	names := []string{"create", "delete", "describe", "list", "peek", "verify", "truncate"}
	for given, want := range map[string]string{
		"creat": "create", "lsit": "list", "desc": "describe", "verfy": "verify", "deleet": "delete", "x": "", "frobnicate": "",
	} {
		if got := Nearest(given, names); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", given, got, want)
		}
	}
}
