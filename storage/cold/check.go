package cold

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
)

// ErrConditions says that a store does not honour "only if it is not there yet".
// Several brokers must not share it: two owners of a partition could both believe
// that an object is theirs. One broker alone may.
var ErrConditions = errors.New("the store does not honour conditional writes")

// Check is the self-test, made at start before anybody writes: it writes an object below check/, reads a range of it,
// lists it, writes other bytes under the same key, which must be refused, lets four writers race for one key, and
// deletes what it wrote. Its error names the step. One that wraps ErrConditions comes
// after all steps were taken, and leaves the store usable for one broker alone.
func (s *Store) Check(ctx context.Context) error {
	k := checker{s: s, key: "check/" + rand.Text(), data: bytes.Repeat([]byte("danube self-test "), 512)}
	if err := k.all(ctx); err != nil {
		return fmt.Errorf("self-test of the cold tier %s: %w", s.name, err)
	}
	return nil
}

// all takes the steps. What a failed one leaves behind lies below check/ and is no other object's business.
func (k *checker) all(ctx context.Context) error {
	if err := k.write(ctx); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	err := k.read(ctx)
	if clean := k.s.Delete(ctx, k.key); err == nil && clean != nil {
		err = fmt.Errorf("delete: %w", clean)
	}
	if err == nil {
		err = k.gone(ctx)
	}
	if err == nil {
		err = k.conditions(ctx)
	}
	return err
}

type checker struct {
	s       *Store
	key     string
	data    []byte
	ignored error // how conditions are not honoured, as far as is known
}

// read looks at the object in every way, and learns whether the store's digests are those of the bytes.
func (k *checker) read(ctx context.Context) error {
	info, err := k.s.Stat(ctx, k.key)
	if err != nil {
		return fmt.Errorf("look at: %w", err)
	}
	sum := md5.Sum(k.data)
	k.s.digests.Store(bytes.Equal(info.MD5, sum[:]))
	p := make([]byte, 1000)
	if err := k.s.ReadAt(ctx, k.key, p, 777); err != nil {
		return fmt.Errorf("read a range: %w", err)
	}
	if !bytes.Equal(p, k.data[777:1777]) {
		return fmt.Errorf("read a range: %w: other bytes came back", Corrupt)
	}
	page, err := k.s.List(ctx, k.key, nil)
	if err != nil {
		return fmt.Errorf("list: %w", err)
	}
	if len(page.Objects) != 1 || page.Objects[0].Key != k.key || page.Objects[0].Size != int64(len(k.data)) {
		return fmt.Errorf("list: %w: the object that was just written is not listed as it is", Corrupt)
	}
	return nil
}

// write makes the object, with the condition if the store knows any.
func (k *checker) write(ctx context.Context) error {
	k.s.unconditional.Store(false)
	_, err := k.s.Put(ctx, k.key, Bytes(k.data))
	if !errors.Is(err, Refused) {
		return err
	}
	k.ignored = fmt.Errorf("it refuses them: %w", err)
	return k.s.Replace(ctx, k.key, k.data)
}

func (k *checker) gone(ctx context.Context) error {
	if _, err := k.s.Stat(ctx, k.key); !errors.Is(err, NotFound) {
		if err == nil {
			err = errors.New("the object is still there")
		}
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// conditions puts what was learned about them into the store.
func (k *checker) conditions(ctx context.Context) error {
	if k.ignored == nil {
		if err := k.race(ctx, 2, 1); err != nil { // one behind the other
			return fmt.Errorf("conditional write: %w", err)
		}
	}
	if k.ignored == nil {
		if err := k.race(ctx, 4, 4); err != nil {
			return fmt.Errorf("conditional writes at once: %w", err)
		}
	}
	k.s.unconditional.Store(k.ignored != nil)
	if k.ignored != nil {
		return fmt.Errorf("%w: %w", ErrConditions, k.ignored)
	}
	return nil
}

// race has writers put different bytes under one key, some at once. Exactly one must come through, and its bytes must
// be what lies there afterwards.
func (k *checker) race(ctx context.Context, writers, atOnce int) error {
	key := "check/" + rand.Text()
	results := make([]error, writers)
	bodies := make([]Body, writers)
	for first := 0; first < writers; first += atOnce {
		var wg sync.WaitGroup
		for i := first; i < min(writers, first+atOnce); i++ {
			bodies[i] = Bytes([]byte(rand.Text()))
			wg.Go(func() { results[i] = k.raw(ctx, key, bodies[i]) }) // returns with its request
		}
		wg.Wait()
	}
	err := k.judge(ctx, key, bodies, results)
	if clean := k.s.Delete(ctx, key); err == nil {
		err = clean
	}
	return err
}

// raw is a conditional write without the reading back that makes a refusal a success.
func (k *checker) raw(ctx context.Context, key string, body Body) error {
	ctx, c := k.s.begin(ctx, "put", key, body.Size)
	defer c.end()
	return c.result(c.run(ctx, body.Size, func(ctx context.Context) error {
		_, err := k.s.upload(ctx, c.key, body, true)
		return err
	}))
}

func (k *checker) judge(ctx context.Context, key string, bodies []Body, results []error) error {
	won := []int{}
	for i, err := range results {
		switch {
		case err == nil:
			won = append(won, i)
		case !errors.Is(err, Exists):
			return err
		}
	}
	switch len(won) {
	case 0: // each was refused: the first answer was lost, and its repetition met its own bytes
		return nil
	case 1:
		_, err := k.s.Put(ctx, key, bodies[won[0]])
		if errors.Is(err, Exists) {
			k.ignored = errors.New("a writer that was refused has overwritten the object")
			return nil
		}
		return err
	}
	k.ignored = fmt.Errorf("%d of %d writers were told that theirs is the one object under a key", len(won), len(bodies))
	return nil
}
