package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// wal is `danube wal`.
func (a *app) wal() *cobra.Command {
	return group("wal", "Look at the write-ahead log of a stopped broker", a.walVerify(), a.walAdopt())
}

// walReport is wal verify -o json.
type walReport struct {
	Directory  string           `json:"directory"`
	Files      int              `json:"files"`
	Bytes      int64            `json:"bytes"`
	Messages   uint64           `json:"messages"`
	Partitions []walPartition   `json:"partitions"`
	Problems   []segmentProblem `json:"problems"`
}

// walPartition is what lies on the disk of one partition.
type walPartition struct {
	Topic     string   `json:"topic"`
	Partition uint32   `json:"partition"`
	TopicID   string   `json:"topic_id"`
	Files     int      `json:"files"`
	Bytes     int64    `json:"bytes"`
	Messages  uint64   `json:"messages"`
	First     uint64   `json:"first"`
	End       uint64   `json:"end"`
	Notes     []string `json:"notes"` // what is no damage: an end that a crash left behind
}

func (a *app) walVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check every segment file below a data directory",
		Long: "DIR is a data directory, or any folder in it. Every file is checked as `segment verify` does, and that files\n" +
			"of a partition follow on each other. The end of a partition's last file may be torn by a crash: that is\n" +
			"noted and no problem, since what was acknowledged of it lies in the journal until it is synced. Exit code 1\n" +
			"when something is wrong.",
		Args: wantArgs("DIR"),
	}
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		rep, err := a.verifyWAL(args[0])
		if err != nil {
			return fmt.Errorf("verify log: %w", err)
		}
		if output.value == "json" {
			err = render.JSON(a.out, rep)
		} else {
			err = printWAL(a.out, rep)
		}
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("verify log %s: %s", args[0], render.Plural(len(rep.Problems), "problem"))
		}
		return err
	}
	return cmd
}

// verifyWAL checks the files of every folder that holds segments: one folder is one partition.
func (a *app) verifyWAL(dir string) (walReport, error) {
	folders, total, err := segmentFolders(dir)
	if err != nil {
		return walReport{}, err
	}
	if len(folders) == 0 {
		return walReport{}, fail.WithHint(fmt.Errorf("%s holds no segment files", dir), "the data directory of a broker is meant; `danube config show` names it")
	}
	rep := walReport{Directory: dir}
	bar := a.newProgress(total, "verify", true)
	for _, folder := range slices.Sorted(keysOf(folders)) {
		part := walPartition{}
		problems, err := verifyPartition(&part, folder, folders[folder], func(n int64) {
			rep.Bytes += n
			if bar != nil {
				bar.set(rep.Bytes)
			}
		})
		if err != nil {
			return walReport{}, err
		}
		rep.Files += part.Files
		rep.Messages += part.Messages
		rep.Partitions = append(rep.Partitions, part)
		rep.Problems = append(rep.Problems, problems...)
	}
	if bar != nil {
		bar.done()
	}
	if err := storage.CheckJournal(disk.OS(), dir); err != nil { // where dir is a folder in a data directory there is none
		rep.Problems = append(rep.Problems, segmentProblem{File: filepath.Join(dir, "journal"), What: err.Error()})
	}
	slices.SortStableFunc(rep.Partitions, func(a, b walPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return rep, nil
}

// keysOf yields the keys of m.
func keysOf[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// segmentFolders finds segment files, by folder, in the order of their offsets.
func segmentFolders(dir string) (map[string][]string, int64, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, 0, err
	}
	if !info.IsDir() {
		return nil, 0, fail.WithHint(fmt.Errorf("%s is a file", dir), "`danube segment verify %s` looks at one", dir)
	}
	folders, total := map[string][]string{}, int64(0)
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if _, _, ok := segment.ParseName(d.Name()); !ok {
			return nil
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		folders[filepath.Dir(path)] = append(folders[filepath.Dir(path)], path)
		return nil
	})
	return folders, total, err
}

// verifyPartition checks the files of one partition, in order.
func verifyPartition(part *walPartition, folder string, files []string, read func(int64)) ([]segmentProblem, error) {
	var problems []segmentProblem
	part.TopicID = filepath.Base(filepath.Dir(folder))
	if n, err := strconv.ParseUint(filepath.Base(folder), 10, 32); err == nil {
		part.Partition = uint32(n)
	}
	epoch := uint64(0) // of the file before
	for i, file := range files {
		rep, err := verifySegment(file)
		if _, newer := errors.AsType[*segment.VersionError](err); newer {
			return nil, err
		}
		if err != nil {
			problems = append(problems, segmentProblem{File: file, What: err.Error()})
			continue
		}
		read(rep.Size)
		part.Files++
		part.Bytes += rep.Size
		part.Messages += rep.Facts.Messages
		found, notes := judgeEnd(rep, i == len(files)-1)
		problems, part.Notes = append(problems, found...), append(part.Notes, notes...)
		if rep.Header == nil {
			continue
		}
		part.Topic, part.TopicID, part.Partition = rep.Header.Topic, rep.Header.TopicID, rep.Header.Partition
		if i == 0 {
			part.First = rep.Facts.First
		} else if hole := (segmentProblem{File: file, From: part.End, To: rep.Facts.First}); hole.From < hole.To && rep.Header.Epoch == epoch {
			hole.What = "the offsets in front of this file lie in no other"
			problems = append(problems, hole)
		} else if hole.From < hole.To {
			part.Notes = append(part.Notes, fmt.Sprintf("offsets %s were not written: a gap between two runs", render.Offsets(hole.From, hole.To)))
		}
		part.End, epoch = max(part.End, rep.Facts.End), rep.Header.Epoch
	}
	return problems, nil
}

// judgeEnd tells damage from the end that a crash leaves: a torn stretch with nothing behind it in a file that was never sealed.
func judgeEnd(rep segmentReport, last bool) (problems []segmentProblem, notes []string) {
	for i, p := range rep.Problems {
		if !rep.Sealed && i == len(rep.Problems)-1 && p.At > 0 && p.At == rep.Facts.DataEnd {
			where := "ends torn"
			if !last {
				where = "of an earlier run ends torn"
			}
			notes = append(notes, fmt.Sprintf("%s %s at %d", filepath.Base(p.File), where, p.At))
			continue
		}
		problems = append(problems, p)
	}
	return problems, notes
}

func printWAL(w io.Writer, r walReport) error {
	t := render.Table{Header: []string{"topic", "partition", "files", "size", "messages", "offsets", "notes"}}
	for _, p := range r.Partitions {
		t.Add(p.Topic, strconv.FormatUint(uint64(p.Partition), 10), strconv.Itoa(p.Files), render.Size(p.Bytes), render.Grouped(p.Messages),
			render.Offsets(p.First, p.End), strings.Join(p.Notes, "; "))
	}
	if err := t.Print(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return printProblems(w, r.Problems)
}
