package settings

import (
	"errors"
	"fmt"
	"net"
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
