package broker_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

func TestPromlintFindsNothingInTheMetrics(t *testing.T) {
	n := start(t, t.TempDir(), nil)
	c := dial(t, n)
	publish(t, c, "linted", 0, 10)
	consume(t, c, "linted/s", 0, 10)
	res, err := http.Get("http://" + n.HTTPAddr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.New(strings.NewReader(string(text))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	series := 0
	for line := range strings.SplitSeq(string(text), "\n") {
		if line != "" && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "danube_") {
			t.Errorf("a series without the prefix: %s", line)
		}
		if strings.Contains(line, `topic="/default/linted"`) {
			series++
		}
	}
	if series == 0 || series > 12 {
		t.Errorf("%d series for one partition with one subscription, at most 12 are wanted", series)
	}
}
