package web

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/protocol"
)

// open serves with a broker that has one operation, which answers with its argument.
func open(t *testing.T, change func(*Config)) (base string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{
		Listener: ln, Metrics: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
		Call: func(_ context.Context, op string, decode func(any) error) (any, error) {
			if op != "topic.create" {
				return nil, &protocol.Error{Code: protocol.CodeUnsupported, Text: "no " + op, Hint: "look"}
			}
			q := new(protocol.TopicCreate)
			if err := decode(q); err != nil {
				return nil, err
			}
			return &protocol.TopicCreated{Topic: q.Topic, Config: q.Config}, nil
		},
		Coded:    func(err error) *protocol.Error { return err.(*protocol.Error) },
		Degraded: func() []string { return []string{} }, NotReady: func() string { return "" }, Failed: func() bool { return false },
	}
	if change != nil {
		change(&cfg)
	}
	s := Open(cfg)
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return "http://" + s.Addr()
}

func answer(t *testing.T, res *http.Response, err error) (int, string) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(body)
}

// JSON says of a topic's settings what is true; an argument is one value whose fields are all known.
func TestArgumentsAreTakenWholeOrRefused(t *testing.T) {
	base := open(t, nil)
	for name, test := range map[string]struct {
		op, body string
		code     int
		want     string
	}{
		"reliable unless it says otherwise": {"topic.create", `{"topic":"t","config":{"partitions":3}}`, 200, `"reliable":true`},
		"not reliable":                      {"topic.create", `{"topic":"t","config":{"reliable":false}}`, 200, `"reliable":false`},
		"nothing":                           {"topic.create", ``, 200, `"topic":""`},
		"an unknown field":                  {"topic.create", `{"topik":"t"}`, 400, "malformed JSON"},
		"two values":                        {"topic.create", `{"topic":"t"} {}`, 400, "more behind"},
		"not JSON":                          {"topic.create", `topic=t`, 400, "malformed JSON"},
		"too long":                          {"topic.create", `{"topic":"` + strings.Repeat("t", maxBody) + `"}`, 400, "too large"},
		"an operation that is not there":    {"topic.paint", `{}`, 501, `"hint":"look"`},
	} {
		res, err := http.Post(base+"/api/v1/"+test.op, "application/json", strings.NewReader(test.body))
		if code, body := answer(t, res, err); code != test.code || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %s, want %d with %s", name, code, body, test.code, test.want)
		}
	}
}

// A broker that may recover by itself is alive; one that does not serve is not ready.
func TestHealthTellsAliveFromReady(t *testing.T) {
	for name, test := range map[string]struct {
		change       func(*Config)
		alive, ready int
		want         string
	}{
		"well":      {nil, 200, 200, `"ok"`},
		"degraded":  {func(c *Config) { c.Degraded = func() []string { return []string{"full"} } }, 200, 200, `"degraded"`},
		"failed":    {func(c *Config) { c.Failed = func() bool { return true } }, 503, 200, `"failed"`},
		"not ready": {func(c *Config) { c.NotReady = func() string { return "starting" } }, 200, 503, `"ok"`},
	} {
		base := open(t, test.change)
		res, err := http.Get(base + "/healthz")
		if code, body := answer(t, res, err); code != test.alive || !strings.Contains(body, test.want) {
			t.Errorf("%s: alive %d %s", name, code, body)
		}
		res, err = http.Get(base + "/readyz")
		if code, body := answer(t, res, err); code != test.ready {
			t.Errorf("%s: ready %d %s", name, code, body)
		}
	}
}
