package calls

import (
	"context"
	"fmt"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Handler carries out a request of another broker, as [cluster.Cluster.Handle] takes it.
type Handler func(ctx context.Context, from state.StoreID, body []byte) ([]byte, error)

// Server says how the requests of other brokers are answered. Both fields are required.
type Server struct {
	Ready func() bool                 // before that nothing is carried out
	Coded func(error) *protocol.Error // what the caller gets for an error
}

// Serve makes a handler of a function that takes a decoded argument.
func Serve[Q, A any](s Server, do func(context.Context, *Q) (*A, error)) Handler {
	return s.Raw(func(ctx context.Context, body []byte) ([]byte, error) {
		q := new(Q)
		if err := protocol.DecodeBody(body, q); err != nil {
			return nil, err
		}
		a, err := do(ctx, q)
		if err != nil {
			return nil, err
		}
		return protocol.EncodeBody(a)
	})
}

// Raw makes a handler of a function that takes bytes and answers with bytes. An error of it that has a word of its own
// for the caller, a method Code() string, goes as it is.
func (s Server) Raw(do func(context.Context, []byte) ([]byte, error)) Handler {
	return func(ctx context.Context, _ state.StoreID, body []byte) ([]byte, error) {
		if !s.Ready() {
			return nil, refusal{protocol.Errorf(protocol.CodeNotReady, "the broker is starting")}
		}
		answer, err := do(ctx, body)
		if err == nil {
			return answer, nil
		}
		if _, own := err.(interface{ Code() string }); own {
			return nil, err
		}
		return nil, refusal{s.Coded(err)}
	}
}

// refusal is a coded error as it goes between brokers.
type refusal struct{ coded *protocol.Error }

func (e refusal) Error() string { return e.coded.Error() }

// Code is the number of the error's code; the text goes beside it.
func (e refusal) Code() string { return fmt.Sprint(uint16(e.coded.Code)) }
