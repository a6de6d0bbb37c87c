package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

// fold moves the oldest half of a long catalog into a page, or takes the first page back when retention is in it.
func (k *Keeper) fold(ctx context.Context, p upkeep.Partition, pending []upkeep.Merge) error {
	if page, ok := k.cfg.Limits.Unpage(p); ok {
		return k.unpage(ctx, p, page)
	}
	list := k.cfg.Limits.Page(p, pending)
	if list == nil {
		return nil
	}
	page, content := catalog.NewPage(p.Topic, p.Number, list, catalog.Object{
		Kind: catalog.PageObject, Incarnation: k.cfg.Self.Incarnation, Unique: unique(),
	})
	name := pageName(p, page)
	k.owe(name)
	err := k.page(ctx, p, page, content)
	if err == nil {
		k.paid(name)
		k.m.folded.Inc()
		return nil
	}
	k.giveUp(name)
	k.m.failed("page", err)
	return errors.Join(fmt.Errorf("fold [%d, %d) of %x:%d: %w", page.Start, page.End, p.Topic, p.Number, err), k.settle(ctx))
}

func pageName(p upkeep.Partition, page catalog.Page) catalog.Name {
	return catalog.NewName(p.Topic, p.Number, page.Object, page.Start, page.End)
}

// page puts the object of a page, reads it back and proposes it.
func (k *Keeper) page(ctx context.Context, p upkeep.Partition, page catalog.Page, content []byte) error {
	name := pageName(p, page)
	mine := func() bool {
		now, ok := k.cfg.View().Find(p.Topic, p.Number)
		return ok && now.Mine && now.Epoch == p.Epoch
	}
	if err := k.put(ctx, keys.Of(name), cold.Bytes(content), mine); err != nil {
		return err
	}
	k.cfg.At(stepListed)
	if _, err := k.content(ctx, name, page); err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	err := k.propose(ctx, func() error {
		return k.cfg.Commands.Page(ctx, Paging{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, Page: page})
	})
	k.cfg.At(stepPaged)
	return err
}

// unpage takes the segments of a page back.
func (k *Keeper) unpage(ctx context.Context, p upkeep.Partition, page catalog.Page) error {
	content, err := k.content(ctx, pageName(p, page), page)
	if err != nil {
		return err
	}
	u := Unpaging{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch, Page: page, Content: content, At: k.cfg.Clock.Now().UnixMilli()}
	err = k.propose(ctx, func() error { return k.cfg.Commands.Unpage(ctx, u) })
	k.cfg.At(stepUnpaged)
	if err != nil {
		return fmt.Errorf("take back page [%d, %d) of %x:%d: %w", page.Start, page.End, p.Topic, p.Number, err)
	}
	return nil
}

// content reads the object of a page, which must be what the catalog has of it.
func (k *Keeper) content(ctx context.Context, name catalog.Name, page catalog.Page) ([]byte, error) {
	key := keys.Of(name)
	b := make([]byte, page.Size)
	if err := k.cfg.Store.ReadAt(ctx, key, b, 0); err != nil {
		k.blame(catalog.Segment{Object: page.Object}, err)
		return nil, err
	}
	c, err := catalog.DecodePage(b)
	if err == nil && (!page.Holds(b) || c.Topic != name.Topic || c.Partition != name.Partition) {
		err = errors.New("another page")
	}
	if err != nil {
		err = &Damage{Key: key, Err: err}
		k.blame(catalog.Segment{Object: page.Object}, err)
		return nil, err
	}
	return b, nil
}
