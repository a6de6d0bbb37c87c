package keeper

import (
	"cmp"
	"context"
	"slices"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold/keys"
)

const (
	// chunk is how much of an object one request reads.
	chunk = 8 << 20
	// bridge is how far two pieces of a cut may lie apart to be read together: a request costs as much as that transfer.
	bridge = 512 << 10
)

// read takes the inputs of all outputs, each in its order, and what several of them have in one cut together.
func (k *Keeper) read(ctx context.Context, outs []*output) error {
	buf := make([]byte, min(chunk, largest(outs)))
	for {
		var head *output
		for _, o := range outs {
			if o.err == nil && o.next < len(o.merge.Inputs) {
				head = o
				break
			}
		}
		if head == nil {
			return nil
		}
		if err := k.readObject(ctx, together(outs, head), buf); err != nil {
			return err
		}
	}
}

func largest(outs []*output) (n int64) {
	for _, o := range outs {
		n = max(n, o.merge.Bytes+bridge*int64(len(outs)-1))
	}
	return n
}

// together returns the outputs whose next input lies in the same object as that of head, in the order of their places.
func together(outs []*output, head *output) []*output {
	object := head.input().Object
	if object.Kind != catalog.Cut {
		return []*output{head}
	}
	var list []*output
	for _, o := range outs {
		if o.err == nil && o.next < len(o.merge.Inputs) && o.input().Object == object {
			list = append(list, o)
		}
	}
	slices.SortFunc(list, func(a, b *output) int { return cmp.Compare(a.input().Position, b.input().Position) })
	return list
}

// readObject gives each output its next input, which lie in one object. Only ctx's end is an error; others are the
// outputs'.
func (k *Keeper) readObject(ctx context.Context, list []*output, buf []byte) error {
	for i := 0; i < len(list); {
		from, to := list[i].place()
		j := i + 1
		for ; j < len(list); j++ {
			a, b := list[j].place()
			if a-to > bridge {
				break
			}
			to = max(to, b)
		}
		if err := k.readSpan(ctx, list[i:j], from, to, buf); err != nil {
			return err
		}
		i = j
	}
	for _, o := range list {
		if o.err != nil {
			k.blame(o.input(), o.err)
			continue
		}
		o.next++
	}
	return nil
}

// readSpan reads [from, to) of the object and hands to each output what is its own.
func (k *Keeper) readSpan(ctx context.Context, list []*output, from, to int64, buf []byte) error {
	first := list[0]
	key := keys.Of(catalog.NewName(first.merge.Partition.Topic, first.merge.Partition.Number, first.input().Object, first.input().Start, first.input().End))
	for _, o := range list {
		o.begin(key)
	}
	for at := from; at < to; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), to-at)]
		if err := k.pace.take(ctx, int64(len(b))); err != nil {
			return err
		}
		err := k.cfg.Store.ReadAt(ctx, key, b, at)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		k.m.moved(err, "read", int64(len(b)))
		for _, o := range list {
			if o.err == nil {
				o.take(b, at, err)
			}
		}
		if err != nil {
			return nil // nobody's input goes on
		}
	}
	return nil
}
