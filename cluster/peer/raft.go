package peer

import (
	"fmt"
	"net"
	"sync"
	"time"
)

// raftListener hands Raft its share of the accepted connections.
type raftListener struct {
	addr   net.Addr
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

// Accept implements net.Listener.
func (l *raftListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, fmt.Errorf("accept Raft stream: %w", net.ErrClosed)
	}
}

// deliver waits until Raft takes the connection. Before the metadata is open nobody does: then it is given up.
func (l *raftListener) deliver(c net.Conn) bool {
	timeout := time.NewTimer(time.Second)
	defer timeout.Stop()
	select {
	case l.conns <- c:
		return true
	case <-l.closed:
	case <-timeout.C:
	}
	return false
}

// Close implements net.Listener. The peer port itself stays open.
func (l *raftListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *raftListener) Addr() net.Addr { return l.addr }
