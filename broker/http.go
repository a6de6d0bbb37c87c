package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/protocol"
)

// httpServer serves health, metrics and the admin API.
type httpServer struct {
	srv  *http.Server
	ln   net.Listener
	done chan struct{}
}

func (h *httpServer) addr() string { return h.ln.Addr().String() }

// close ends the server. Requests under way get a second.
func (h *httpServer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := h.srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.srv.Close()
	}
	<-h.done
	return err
}

// openHTTP opens the HTTP port, so that health can be asked from the start on.
func (b *Broker) openHTTP() error {
	if b.cfg.Listen.HTTP == "" {
		return nil
	}
	ln, err := b.cfg.Listen.Open("tcp", b.cfg.Listen.HTTP)
	if err != nil {
		return &ListenError{Port: "HTTP", Address: b.cfg.Listen.HTTP, Err: err}
	}
	h := &httpServer{ln: ln, done: make(chan struct{}), srv: &http.Server{
		Handler: fatalPanics(b.routes()), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute,
		MaxHeaderBytes: 64 << 10,
	}}
	go func() { // returns when the server is closed
		defer close(h.done)
		if err := h.srv.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			b.log.Error("HTTP ended", "err", err)
		}
	}()
	b.http = h
	return nil
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

func (b *Broker) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", b.healthz)
	mux.HandleFunc("GET /readyz", b.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(b.cfg.Metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("POST /api/v1/{op}", b.adminHTTP)
	if b.cfg.Pprof {
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
func (b *Broker) healthz(w http.ResponseWriter, _ *http.Request) {
	h := health{Status: "ok", Reasons: b.degradedNow()}
	code := http.StatusOK
	switch {
	case b.ready.Load() && b.store.Err() != nil:
		h.Status, code = "failed", http.StatusServiceUnavailable
	case len(h.Reasons) > 0:
		h.Status = "degraded"
	}
	writeJSON(w, code, h)
}

// readyz says whether the broker serves.
func (b *Broker) readyz(w http.ResponseWriter, _ *http.Request) {
	if why := b.notReady(); why != "" {
		writeJSON(w, http.StatusServiceUnavailable, health{Status: "not ready", Reasons: []string{why}})
		return
	}
	h := health{Status: "ok", Reasons: b.degradedNow()}
	if len(h.Reasons) > 0 {
		h.Status = "degraded"
	}
	writeJSON(w, http.StatusOK, h)
}

// degradedNow is degraded once the broker has started.
func (b *Broker) degradedNow() []string {
	if !b.ready.Load() {
		return []string{}
	}
	view := b.meta.View()
	return append(b.degraded(), words.Take(view).Reasons(view)...)
}

// maxHTTPBody bounds the argument of an operation.
const maxHTTPBody = 1 << 20

// adminHTTP carries the admin operations as JSON: POST /api/v1/topic.create and so on.
func (b *Broker) adminHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), adminTime)
	defer cancel()
	out, err := b.call(ctx, r.PathValue("op"), func(v any) error {
		if err := decodeJSON(http.MaxBytesReader(w, r.Body, maxHTTPBody), v); err != nil {
			return protocol.Errorf(protocol.CodeBadRequest, "malformed JSON: %v", err)
		}
		return nil
	})
	if err != nil {
		e := b.wireError(err)
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

// topicConfig is a topic's settings as JSON has them: a person says what is
// true, the binary protocol what differs from the default.
type topicConfig struct {
	protocol.TopicConfig
	Reliable bool `json:"reliable"`
}

// decodeJSON reads an argument: one JSON value and nothing behind it, each of
// its fields known. No body at all is an argument with nothing in it.
func decodeJSON(r io.Reader, v any) error {
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	into := v
	create, ok := v.(*protocol.TopicCreate)
	var named struct {
		Topic  string      `json:"topic"`
		Config topicConfig `json:"config"`
	}
	if ok {
		named.Config.Reliable = true
		into = &named
	}
	err := d.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind the argument")
	}
	if ok {
		create.Topic, create.Config = named.Topic, named.Config.TopicConfig
		create.Config.NonReliable = !named.Config.Reliable
	}
	return nil
}

func httpStatus(c protocol.Code) int {
	switch c {
	case protocol.CodeNoSuchTopic, protocol.CodeNoSuchPartition, protocol.CodeNoSuchSub, protocol.CodeNoSuchNamespace:
		return http.StatusNotFound
	case protocol.CodeExists, protocol.CodeSubscriptionInUse:
		return http.StatusConflict
	case protocol.CodeInternal:
		return http.StatusInternalServerError
	case protocol.CodeUnsupported:
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
