package main

import (
	"strings"
	"testing"

	"github.com/danubemq/danube/cmd/danube/bench"
	"github.com/danubemq/danube/cmd/danube/fail"
)

func TestErrorsFailABench(t *testing.T) {
	s := newShell()
	err := s.printBench(bench.Result{Errors: 2}, "x", true)
	if fail.CodeOf(err) != fail.Failed || !strings.Contains(s.out.String(), `"errors": 2`) {
		t.Errorf("%v, prints %s", err, s.out.String())
	}
}
