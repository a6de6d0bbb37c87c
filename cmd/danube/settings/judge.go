package settings

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// judgeCluster names what single settings cannot show: how this broker and the others are to reach each other.
func (s *values) judgeCluster(alone bool) error {
	if alone {
		return s.judgeAlone()
	}
	host, told := s.text("host"), s.text("cluster.advertise")
	if host, _, err := net.SplitHostPort(told); err == nil {
		told = host
	}
	if ip := net.ParseIP(told); ip != nil && ip.IsUnspecified() {
		return fmt.Errorf("%s: cluster.advertise is %s, a wildcard: nobody can dial that", s.origins["cluster.advertise"].where(), told)
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() && told == "" {
		return fmt.Errorf("%s: host is %s, a wildcard that no other broker can dial: --advertise names the address that others are to use", s.origins["host"].where(), host)
	}
	if told == "" && isLoopback(host) {
		for _, seed := range s.by.Strings("cluster.seeds") {
			at, _, err := net.SplitHostPort(seed)
			if ip := net.ParseIP(at); err == nil && ip != nil && !ip.IsLoopback() {
				return fmt.Errorf("%s: host is %s, which brokers on other machines (seed %s) cannot reach: --host names an address of this machine", s.origins["host"].where(), host, seed)
			}
		}
	}
	return nil
}

// schemes are the URLs of each storage mode that has one.
func schemes() map[string][]string {
	return map[string][]string{"shared_fs": {"file"}, "object_store": {"s3", "gs", "azblob"}}
}

// judgeDurable holds the storage mode against the URL of the cold tier, which is shown to nobody.
func (s *values) judgeDurable() error {
	mode, text := s.text("storage.mode"), s.text("storage.durable.url")
	allowed := schemes()[mode]
	at := s.origins["storage.mode"].where()
	scheme, _, _ := strings.Cut(text, ":")
	switch {
	case allowed == nil && s.text("storage.durability") == "object":
		return fmt.Errorf("%s: storage.durability is object, and storage.mode is local: it needs a cold tier", s.origins["storage.durability"].where())
	case allowed == nil && text == "":
		return nil
	case allowed == nil:
		return fmt.Errorf("%s: storage.durable.url is set, and storage.mode is local: shared_fs takes file:///mount, object_store a bucket", s.origins["storage.durable.url"].where())
	case text == "":
		return fmt.Errorf("%s: storage.mode is %s: storage.durable.url must say where (%s://…)", at, mode, strings.Join(allowed, "://…, "))
	case !slices.Contains(allowed, scheme):
		return fmt.Errorf("%s: storage.mode is %s: storage.durable.url begins with %s://, not %q", at, mode, strings.Join(allowed, ":// or "), scheme)
	}
	return nil
}

func (s *values) judgeAlone() error {
	var errs []error
	for _, key := range []string{"cluster.seeds", "cluster.expect"} {
		if v := s.text(key); v != s.known[key].value && v != "1" {
			errs = append(errs, fmt.Errorf("%s: %s is %s: a broker that stands alone joins nobody; `danube join` does", s.origins[key].where(), key, v))
		}
	}
	return errors.Join(errs...)
}

// isLoopback reports whether only this machine can reach host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
