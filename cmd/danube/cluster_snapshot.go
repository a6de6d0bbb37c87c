package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/protocol"
)

// snapshotPage is how many bytes of a snapshot travel at a time.
const snapshotPage = 1 << 20

// snapshotDone is cluster snapshot -o json.
type snapshotDone struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
}

// restoreDone is cluster restore -o json.
type restoreDone struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	// Vanished are the topics that are not served any more, at most 1,000 of Gone.
	Vanished []string `json:"vanished"`
	Gone     int      `json:"gone"`
}

func (a *app) clusterSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot FILE",
		Short: "Write the cluster's metadata to a file",
		Long: "The file holds topics, owners, subscriptions and what was acknowledged: everything but the messages. An\n" +
			"existing file is replaced in one step, when all is written.",
		Args: wantArgs("FILE"),
	}
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if _, err := os.Stat(args[0]); err == nil {
			if err := a.confirm(*yes, "replace the file "+args[0]); err != nil {
				return err
			}
		}
		n, err := a.saveSnapshot(cmd.Context(), args[0])
		if err != nil {
			return fail.Doing(err, "take a snapshot")
		}
		if output.value == "json" {
			return render.JSON(a.out, snapshotDone{args[0], n})
		}
		_, err = fmt.Fprintf(a.out, "snapshot of the metadata in %s (%s)\n", args[0], render.Size(n))
		return err
	}
	return cmd
}

// saveSnapshot writes a snapshot beside file and renames it when it is whole and synced.
func (a *app) saveSnapshot(ctx context.Context, file string) (int64, error) {
	c, err := a.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*.tmp")
	if err != nil {
		return 0, err
	}
	n, err := copySnapshot(ctx, c.Admin(), f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	return n, nil
}

// copySnapshot writes every page of a snapshot.
func copySnapshot(ctx context.Context, admin *client.Admin, w io.Writer) (int64, error) {
	next := protocol.SnapshotPage{}
	for {
		page, err := admin.SnapshotPage(ctx, next)
		if err != nil {
			return 0, err
		}
		if page.Offset != next.Offset || len(page.Data) == 0 && !page.Last {
			return 0, fmt.Errorf("the broker answered byte %d of the snapshot with %d bytes of byte %d", next.Offset, len(page.Data), page.Offset)
		}
		if _, err := w.Write(page.Data); err != nil {
			return 0, err
		}
		next = protocol.SnapshotPage{ID: page.ID, Offset: page.Offset + int64(len(page.Data))}
		if page.Last {
			return next.Offset, nil
		}
	}
}

func (a *app) clusterRestore() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a snapshot in place of the cluster's metadata",
		Long: "What was decided after the snapshot is forgotten: topics made since are not served, and named; subscriptions\n" +
			"stand where they stood then. A new history begins, so that nothing acknowledged since can be mistaken for\n" +
			"something else: every partition goes on 2^32 above the offsets it had. One that moved since is with its old owner\n" +
			"again; what was written behind the move stays on its disk, and no reader gets it. No file is deleted.",
		Args: wantArgs("FILE"),
	}
	yes := addYes(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		f, err := os.Open(args[0])
		if err != nil {
			return fmt.Errorf("open the snapshot: %w", err)
		}
		defer f.Close()
		if err := a.confirm(*yes, "put "+args[0]+" in place of the metadata of the running cluster"); err != nil {
			return err
		}
		done, err := a.sendSnapshot(cmd.Context(), f)
		if err != nil {
			return fail.Doing(err, "restore %s", args[0])
		}
		if output.value == "json" {
			return render.JSON(a.out, done)
		}
		return printRestored(a.out, done)
	}
	return cmd
}

// printRestored says what a restore did and which topics it took away.
func printRestored(w io.Writer, d restoreDone) error {
	fmt.Fprintf(w, "restored the metadata from %s (%s): a new history has begun\n", d.File, render.Size(d.Bytes))
	_, err := fmt.Fprintln(w, "next: danube cluster status lists offsets where others may have written more than the snapshot knows of, as orphaned;\n"+
		"danube topic resolve TOPIC --lost gives up those of a topic")
	if err != nil || d.Gone == 0 {
		return err
	}
	fmt.Fprintf(w, "made after the snapshot, and not served any more: %s\n", render.Plural(d.Gone, "topic"))
	for _, name := range d.Vanished {
		fmt.Fprintln(w, "  "+name)
	}
	if n := d.Gone - len(d.Vanished); n > 0 {
		fmt.Fprintf(w, "  and %d more\n", n)
	}
	_, err = fmt.Fprintln(w, "their messages stay in files on the disks of the brokers that had them")
	return err
}

// sendSnapshot sends f page by page; the last page carries the restore out.
func (a *app) sendSnapshot(ctx context.Context, f *os.File) (done restoreDone, err error) {
	info, err := f.Stat()
	if err != nil {
		return done, err
	}
	if !info.Mode().IsRegular() || info.Size() == 0 {
		return done, fmt.Errorf("%s is no snapshot: it is empty, or no file", f.Name())
	}
	c, err := a.dial(ctx)
	if err != nil {
		return done, err
	}
	defer c.Close()
	page := protocol.SnapshotPage{Size: info.Size()}
	for buf := make([]byte, snapshotPage); page.Offset < page.Size; {
		n, err := io.ReadFull(f, buf[:min(int64(len(buf)), page.Size-page.Offset)])
		if err != nil {
			return done, fmt.Errorf("read the snapshot: %w", err)
		}
		page.Data, page.Last = buf[:n], page.Offset+int64(n) == page.Size
		answer, err := c.Admin().RestorePage(ctx, page)
		if err != nil {
			return done, err
		}
		page.ID, page.Offset = answer.ID, page.Offset+int64(n)
		done = restoreDone{f.Name(), page.Size, answer.Vanished, answer.Gone}
	}
	return done, nil
}
