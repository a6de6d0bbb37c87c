// Package web is the HTTP port of a broker: health, metrics, and the admin operations as JSON.
//
// Its one type is Server. It knows no operation, no partition and no metadata: what it answers it asks of the functions
// of its Config, and a topic's settings are all it translates, since JSON says what is true of them and the binary
// protocol what differs from the default. A panic in a handler ends the process, as everywhere else.
//
// One goroutine serves; those of requests are net/http's. Close gives the requests under way a second.
package web

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/danubemq/danube/protocol"
)

// Config says what a server is made of. All fields but Pprof are required.
type Config struct {
	Listener net.Listener // Close closes it
	Metrics  prometheus.Gatherer
	Pprof    bool // serve /debug/pprof
	// Call runs an admin operation by name; decode decodes its argument.
	Call  func(ctx context.Context, op string, decode func(any) error) (any, error)
	Coded func(error) *protocol.Error // what a client gets for an error
	// Degraded says in words what is not as it should be, NotReady why the broker
	// does not serve, "" when it does, and Failed that it cannot recover by itself.
	Degraded func() []string
	NotReady func() string
	Failed   func() bool
	Log      *slog.Logger
}

// Server serves health, metrics and the admin API.
type Server struct {
	cfg  Config
	srv  *http.Server
	done chan struct{}
}

// Open begins to serve, so that health can be asked from the start on.
func Open(cfg Config) *Server {
	s := &Server{cfg: cfg, done: make(chan struct{})}
	s.srv = &http.Server{
		Handler: fatalPanics(s.routes()), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10,
	}
	go func() { // returns when the server is closed
		defer close(s.done)
		if err := s.srv.Serve(cfg.Listener); !errors.Is(err, http.ErrServerClosed) {
			cfg.Log.Error("HTTP ended", "err", err)
		}
	}()
	return s
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.cfg.Listener.Addr().String() }

// Close ends the server. Requests under way get a second.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.srv.Close()
	}
	<-s.done
	return err
}

// fatalPanics ends the process on a panic, as everywhere else: net/http would carry on with a broken broker.
func fatalPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if v := recover(); v != nil {
				fmt.Fprintf(os.Stderr, "panic: %v\n\n%s", v, debug.Stack())
				os.Exit(2)
			}
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /api/v1/{op}", s.operation)
	if s.cfg.Pprof {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	}
	return mux
}

// health is what /healthz and /readyz answer.
type health struct {
	Status  string   `json:"status"` // ok, degraded, not ready, failed
	Reasons []string `json:"reasons"`
}

// healthz says whether the process is worth keeping: 503 only when it cannot recover by itself.
func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	h := health{Status: "ok", Reasons: s.cfg.Degraded()}
	code := http.StatusOK
	switch {
	case s.cfg.Failed():
		h.Status, code = "failed", http.StatusServiceUnavailable
	case len(h.Reasons) > 0:
		h.Status = "degraded"
	}
	writeJSON(w, code, h)
}

// readyz says whether the broker serves.
func (s *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	if why := s.cfg.NotReady(); why != "" {
		writeJSON(w, http.StatusServiceUnavailable, health{Status: "not ready", Reasons: []string{why}})
		return
	}
	h := health{Status: "ok", Reasons: s.cfg.Degraded()}
	if len(h.Reasons) > 0 {
		h.Status = "degraded"
	}
	writeJSON(w, http.StatusOK, h)
}

const (
	// maxBody bounds the argument of an operation, callTime the operation.
	maxBody  = 1 << 20
	callTime = 60 * time.Second
)

// operation carries the admin operations as JSON: POST /api/v1/topic.create and so on.
func (s *Server) operation(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), callTime)
	defer cancel()
	out, err := s.cfg.Call(ctx, r.PathValue("op"), func(v any) error {
		if err := decodeJSON(http.MaxBytesReader(w, r.Body, maxBody), v); err != nil {
			return protocol.Errorf(protocol.CodeBadRequest, "malformed JSON: %v", err)
		}
		return nil
	})
	if err != nil {
		e := s.cfg.Coded(err)
		writeJSON(w, httpStatus(e.Code), map[string]string{
			"code": strings.ToLower(e.Code.String()), "error": e.Error(), "hint": e.Hint, "request": e.Request,
		})
		return
	}
	if made, ok := out.(*protocol.TopicCreated); ok {
		out = struct {
			*protocol.TopicCreated
			Config topicConfig `json:"config"`
		}{made, topicConfig{made.Config, !made.Config.NonReliable}}
	}
	writeJSON(w, http.StatusOK, out)
}

func httpStatus(c protocol.Code) int {
	switch c {
	case protocol.CodeNoSuchTopic, protocol.CodeNoSuchPartition, protocol.CodeNoSuchSub, protocol.CodeNoSuchNamespace:
		return http.StatusNotFound
	case protocol.CodeExists, protocol.CodeSubscriptionInUse:
		return http.StatusConflict
	case protocol.CodeInternal:
		return http.StatusInternalServerError
	case protocol.CodeUnsupported, protocol.CodeLevelUnavailable: // known, and not there
		return http.StatusNotImplemented
	}
	if c.Meaning().Retriable {
		return http.StatusServiceUnavailable
	}
	return http.StatusBadRequest
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // the peer went away: nobody to tell
}
