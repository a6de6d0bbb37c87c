package main

import (
	"net"
	"sync"
	"testing"

	"github.com/danubemq/danube/protocol"
)

// puppet is a broker that answers admin operations as a test says.
type puppet struct {
	addr string
	ln   net.Listener
	wg   sync.WaitGroup

	mu     sync.Mutex // guards what follows
	answer func(op string, body []byte) (any, error)
	asked  []string
	conns  []net.Conn
}

// newPuppet starts one until the end of the test. An error of answer goes out as it is when it is a protocol.Error.
func newPuppet(t *testing.T, answer func(op string, body []byte) (any, error)) *puppet {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &puppet{addr: ln.Addr().String(), ln: ln, answer: answer}
	s.wg.Go(s.accept) // returns when the listener is closed
	t.Cleanup(func() {
		_ = ln.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

func (s *puppet) accept() {
	for {
		c, err := s.ln.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.wg.Go(func() { s.serve(c) }) // returns when the connection ends
	}
}

func (s *puppet) serve(c net.Conn) {
	defer c.Close()
	r := protocol.NewReader(c, 64<<10)
	r.SetLimit(32 << 20)
	for {
		f, err := r.Next()
		if err != nil {
			return
		}
		var reply []byte
		switch f.Type {
		case protocol.TypeHello:
			reply = protocol.AppendFrame(nil, protocol.TypeHelloOK, f.ID, &protocol.HelloOK{
				Version: protocol.Version, Broker: "n1", Cluster: "test", MaxFrame: 17 << 20, MaxMessage: 10 << 20, MaxBatch: 16 << 20, Window: 256, HeartbeatMS: 3000}, nil)
		case protocol.TypePing:
			reply = protocol.AppendFrame(nil, protocol.TypePong, f.ID, nil, nil)
		case protocol.TypeAdmin:
			reply = s.admin(f)
		default:
			continue
		}
		if _, err := c.Write(reply); err != nil {
			return
		}
	}
}

func (s *puppet) admin(f protocol.Frame) []byte {
	var a protocol.Admin
	err := a.Decode(f.Header)
	s.mu.Lock()
	s.asked = append(s.asked, a.Op)
	answer := s.answer
	s.mu.Unlock()
	var res any
	if err == nil {
		res, err = answer(a.Op, f.Body)
	}
	var body []byte
	if err == nil {
		body, err = protocol.EncodeBody(res)
	}
	if err == nil {
		return protocol.AppendFrame(nil, protocol.TypeAdminOK, f.ID, nil, body)
	}
	e, ok := err.(*protocol.Error)
	if !ok {
		e = protocol.Errorf(protocol.CodeInternal, "%s", err)
	}
	return protocol.AppendFrame(nil, protocol.TypeError, f.ID, e, nil)
}

// shell is a command line that talks to this broker.
func (s *puppet) shell() *shell { return newShell("DANUBE_BROKER=" + s.addr) }
