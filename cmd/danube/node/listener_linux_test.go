package node

import (
	"net"
	"os"
	"testing"
)

// TestListenerIsAtTheAddress: who listens on the port at another address of this machine is not in the way.
func TestListenerIsAtTheAddress(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.21:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]int{"127.0.0.21": os.Getpid(), "127.0.0.22": 0, "0.0.0.0": os.Getpid(), "": os.Getpid(), "no host": 0} {
		if got := listener(net.JoinHostPort(host, port)); got != want {
			t.Errorf("%s: process %d, want %d", host, got, want)
		}
	}
}

// TestListenerOnAllAddresses is in the way of every one, whether it is of IPv4 or of IPv6.
func TestListenerOnAllAddresses(t *testing.T) {
	for _, all := range []string{"0.0.0.0:0", ":0"} {
		ln, err := net.Listen("tcp", all)
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if got := listener("127.0.0.22:" + port); got != os.Getpid() {
			t.Errorf("with one on %s: process %d, want %d", all, got, os.Getpid())
		}
		if err := ln.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
