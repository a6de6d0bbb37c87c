package meta

import (
	"context"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// newLogger returns a logger for Raft whose output goes to l at debug: what matters to an operator, the node says
// itself. The original level is an attribute.
func newLogger(l *slog.Logger) hclog.Logger {
	h := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Debug, Output: io.Discard})
	h.RegisterSink(sink{l})
	return h
}

type sink struct{ l *slog.Logger }

// Accept implements hclog.SinkAdapter.
func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	if !s.l.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	s.l.Debug("raft: "+msg, append([]any{slog.String("raft_level", level.String())}, args...)...)
}
