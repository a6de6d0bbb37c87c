package offline

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// Log is what a check of a log found: wal verify -o json.
type Log struct {
	Directory  string      `json:"directory"`
	Files      int         `json:"files"`
	Bytes      int64       `json:"bytes"`
	Messages   uint64      `json:"messages"`
	Partitions []Partition `json:"partitions"`
	Problems   []Problem   `json:"problems"`
}

// Partition is what lies on the disk of one partition.
type Partition struct {
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

// VerifyLog checks the files of every folder below dir that holds segments: one folder is one partition. It calls read
// as it goes, with how many bytes of how many are read.
func VerifyLog(dir string, read func(done, total int64)) (Log, error) {
	folders, total, err := segmentFolders(dir)
	if err != nil {
		return Log{}, err
	}
	if len(folders) == 0 {
		return Log{}, fail.WithHint(fmt.Errorf("%s holds no segment files", dir), "the data directory of a broker is meant; `danube config show` names it")
	}
	rep := Log{Directory: dir}
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		part := Partition{}
		problems, err := verifyPartition(&part, folder, folders[folder], func(n int64) {
			rep.Bytes += n
			read(rep.Bytes, total)
		})
		if err != nil {
			return Log{}, err
		}
		rep.Files += part.Files
		rep.Messages += part.Messages
		rep.Partitions = append(rep.Partitions, part)
		rep.Problems = append(rep.Problems, problems...)
	}
	if err := storage.CheckJournal(disk.OS(), dir); err != nil { // where dir is a folder in a data directory there is none
		rep.Problems = append(rep.Problems, Problem{File: filepath.Join(dir, "journal"), What: err.Error()})
	}
	slices.SortStableFunc(rep.Partitions, func(a, b Partition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return rep, nil
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
func verifyPartition(part *Partition, folder string, files []string, read func(int64)) ([]Problem, error) {
	var problems []Problem
	part.TopicID = filepath.Base(filepath.Dir(folder))
	if n, err := strconv.ParseUint(filepath.Base(folder), 10, 32); err == nil {
		part.Partition = uint32(n)
	}
	epoch := uint64(0) // of the file before
	for i, file := range files {
		rep, err := verifyFile(file)
		if _, newer := errors.AsType[*segment.VersionError](err); newer {
			return nil, err
		}
		if err != nil {
			problems = append(problems, Problem{File: file, What: err.Error()})
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
		} else if hole := (Problem{File: file, From: part.End, To: rep.Facts.First}); hole.From < hole.To && rep.Header.Epoch == epoch {
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
func judgeEnd(rep *Segment, last bool) (problems []Problem, notes []string) {
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

// Print prints the report for a person.
func (r Log) Print(w io.Writer) error {
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
