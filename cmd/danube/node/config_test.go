package node

import (
	"net"
	"testing"

	"github.com/danubemq/danube/cmd/danube/settings"
)

func TestAdvertised(t *testing.T) {
	for name, c := range map[string]struct {
		host, advertise string
		port            int
		want            string
	}{
		"loopback":               {"127.0.0.1", "", 6650, ""},
		"one address":            {"10.0.0.1", "", 6650, ""},
		"wildcard":               {"0.0.0.0", "", 6650, net.JoinHostPort(reachable(), "6650")},
		"wildcard, free port":    {"::", "", 0, ""},
		"host told":              {"0.0.0.0", "broker.example", 6650, "broker.example:6650"},
		"IPv6 told":              {"::", "2001:db8::1", 6650, "[2001:db8::1]:6650"},
		"told with port":         {"0.0.0.0", "broker.example:7000", 6650, "broker.example:7000"},
		"told, free port":        {"0.0.0.0", "broker.example", 0, ""},
		"told beside an address": {"10.0.0.1", "broker.example", 6650, "broker.example:6650"},
	} {
		cfg := settings.Config{Host: c.host, ClientPort: c.port}
		cfg.Cluster.Advertise = c.advertise
		if got := advertised(cfg); got != c.want {
			t.Errorf("%s: clients are told %q, want %q", name, got, c.want)
		}
	}
}
