package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/sessions"
)

// takeOver finishes the files that an interrupted copy has left, as far as their
// batches are whole.
func (c *Copy) takeOver() error {
	fsys, dir := c.config.Home.FS, c.dir()
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name, unfinished := strings.CutSuffix(e.Name, Suffix)
		base, epoch, ok := segment.ParseName(name)
		if !unfinished || !ok {
			continue
		}
		if err := c.resume(path.Join(dir, name), copied{base, epoch}); err != nil {
			return fmt.Errorf("take over %s: %w", e.Name, err)
		}
	}
	return nil
}

// resume seals what is whole of an unfinished file, or removes it.
func (c *Copy) resume(name string, me copied) error {
	fsys := c.config.Home.FS
	h, err := fsys.Open(name+Suffix, disk.Write)
	if err != nil {
		return err
	}
	f := &copying{handle: h, name: name, base: me.base, epoch: me.epoch, end: me.base}
	header, size, err := c.place(name, me).Header(h)
	if _, taken := fsys.Stat(name); err != nil || taken == nil {
		c.now = f
		return c.abandon() // it is copied again
	}
	raw, err := header.Append(nil)
	if err != nil {
		return errors.Join(err, h.Close())
	}
	f.summary = segment.NewSummary(raw, me.base)
	total, err := h.Size()
	if err != nil {
		return errors.Join(err, h.Close())
	}
	c.table = c.tableBefore(me)
	scan := segment.NewScanner(h, total, header.Origin(size))
	for {
		x, err := scan.Next()
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(err, h.Close())
		}
		if err != nil || x.Kind != segment.Whole || x.Batch.Base() != f.end {
			break // what follows is copied again
		}
		f.summary.Add(x.Batch)
		c.table.Record(x.Batch)
		f.end = x.Batch.End()
	}
	f.size = f.summary.Facts().DataEnd
	c.now = f
	if f.end == me.base {
		return c.abandon()
	}
	if err := h.Truncate(f.size); err != nil {
		return c.config.Failed(err)
	}
	return c.Commit()
}

// look finds what the store holds of the partition.
func (c *Copy) look(ctx context.Context) error {
	own, _ := c.config.Own() // the epoch that is being written: its file is not history
	c.have, c.named = nil, nil
	entries, err := c.config.Home.FS.ReadDir(c.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, epoch, ok := segment.ParseName(e.Name)
		if !ok || e.Dir || epoch == own && own != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		me := copied{base, epoch}
		end, err := c.holds(path.Join(c.dir(), e.Name), me)
		if err != nil {
			return fmt.Errorf("look at %s: %w", e.Name, err)
		}
		c.add(Span{epoch, base, end}, me)
	}
	return nil
}

// holds returns the offset up to which a segment file holds every message from
// its base on. Of a sealed one the footer is believed.
func (c *Copy) holds(name string, me copied) (uint64, error) {
	h, err := c.config.Home.FS.Open(name, 0)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	if _, _, err := c.place(name, me).Header(h); err != nil {
		if _, newer := errors.AsType[*segment.VersionError](err); newer {
			return 0, err
		}
		return me.base, nil // foreign or damaged: it holds nothing
	}
	total, err := h.Size()
	if err != nil {
		return 0, err
	}
	footer, err := segment.ReadFooter(h, total)
	if err == nil && footer.First == me.base && footer.Messages == footer.End-footer.First {
		return footer.End, nil
	}
	found, err := c.place(name, me).Scan(h, total, nil)
	if err != nil {
		return 0, err
	}
	if len(found.Damaged) > 0 {
		return found.Damaged[0].From, nil
	}
	return found.End, nil
}

// tableAlone says whether a file holds a producer table and no message. A move that
// was taken back has left it; what is copied to its place takes over what it says.
func (c *Copy) tableAlone(name string, me copied) bool {
	h, err := c.config.Home.FS.Open(name, 0)
	if err != nil {
		return false
	}
	defer h.Close()
	total, err := h.Size()
	if err != nil {
		return false
	}
	if _, _, err := c.place(name, me).Header(h); err != nil {
		return false
	}
	footer, err := segment.ReadFooter(h, total)
	return err == nil && footer.Batches == 0
}

// tableBefore is the producer table as the file in front of one, or one without
// messages at its place, left it: each footer holds the whole table up to there. Where none can be read it is
// empty, and what the owner hands over (R17) takes its place.
func (c *Copy) tableBefore(me copied) sessions.Table {
	var before copied
	found := false
	for _, x := range c.named {
		if x.base < me.base || x.base == me.base && x.epoch <= me.epoch {
			before, found = x, true
		}
	}
	var p sessions.Table
	if !found {
		return p
	}
	h, err := c.config.Home.FS.Open(path.Join(c.dir(), segment.FormatName(before.base, before.epoch)), 0)
	if err != nil {
		return p
	}
	defer h.Close()
	total, err := h.Size()
	if err != nil {
		return p
	}
	if footer, err := segment.ReadFooter(h, total); err == nil {
		if table, err := footer.Producers(); err == nil {
			p.Load(table)
		}
	}
	return p
}
