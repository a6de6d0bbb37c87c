package history

import (
	"errors"
	"testing"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// The log of a partition is open once: whoever is to serve it closes what the
// archive has open.
func TestLogIsOpenOnce(t *testing.T) {
	n1 := newRig(t)
	n1.serve(50)
	n2 := join(t, n1.cfg.Meta, "n2", n1)
	n1.moveTo(n2)
	body, err := protocol.EncodeBody(&fetchArg{Partition: calls.Of(n1.metadata()), To: 50, Max: 1, Index: n1.cfg.Meta.View().Index()})
	wantNil(t, err)
	if data, err := n1.Fetch(t.Context(), body); err != nil || len(data) == 0 {
		t.Fatalf("%d bytes, %v", len(data), err)
	}
	id := idOf(n1.metadata())
	if n1.archive.at(id).log == nil {
		t.Fatal("the archive has not opened it")
	}
	n2.serve(0)
	n2.moveTo(n1)
	n1.served.over.Store(false)
	n1.serve(0)
	if n1.archive.at(id).log != nil {
		t.Error("the archive has it open still")
	}
	if _, _, err := n1.Own(t.Context(), storage.Facts{ID: id}); !errors.Is(err, storage.ErrOpen) {
		t.Errorf("opened twice: %v", err)
	}
}
