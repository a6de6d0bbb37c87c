// Package keys says what objects are called: a name is all that garbage
// collection, an audit and a rebuild have before they read anything. Names are
// below the store's prefix; docs/format.md lists them.
//
// Who makes an object puts into its name a number drawn at random, and for what
// only the catalog can vouch for also the incarnation that made it: no two tries
// of different writers share a name (R11), and a name says when its maker is over
// (R12). A name that Parse accepts is the one that String makes, so a renamed
// object is no object of ours.
package keys

import (
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrForeign says that a name is none of this package.
var ErrForeign = errors.New("not the name of an object of this kind")

const (
	topics    = "topics/"
	cuts      = "cuts/"
	histories = "histories/"
)

// Cluster is the object that says which cluster lives in a bucket.
const Cluster = "cluster"

// Manifests is what the names of all manifests begin with.
const Manifests = "manifests/"

// Segment names a sealed segment of one partition: offsets [Start, End).
type Segment struct {
	Topic       [16]byte
	Partition   uint32
	Start, End  uint64
	Epoch       uint64 // under which it was exported, or the last of what was merged
	Incarnation uint64 // of the exporter
	Unique      uint64 // random
}

// String returns the name.
func (s Segment) String() string {
	return fmt.Sprintf("%s%020d-%020d-%016x-%d-%016x.seg", OfPartition(s.Topic, s.Partition), s.Start, s.End, s.Epoch, s.Incarnation, s.Unique)
}

// ParseSegment is the reverse of String.
func ParseSegment(name string) (Segment, error) {
	var s Segment
	var err error
	rest, ok := s.inPartition(name)
	fields := strings.Split(strings.TrimSuffix(rest, ".seg"), "-")
	if !ok || len(fields) != 5 {
		return Segment{}, ErrForeign
	}
	s.Start = number(fields[0], 10, &err)
	s.End = number(fields[1], 10, &err)
	s.Epoch = number(fields[2], 16, &err)
	s.Incarnation = number(fields[3], 10, &err)
	s.Unique = number(fields[4], 16, &err)
	if err != nil || s.String() != name {
		return Segment{}, ErrForeign
	}
	return s, nil
}

// inPartition reads the folder of a partition and returns what stands behind it.
func (s *Segment) inPartition(name string) (rest string, ok bool) {
	fields := strings.Split(name, "/")
	if len(fields) != 4 || fields[0]+"/" != topics {
		return "", false
	}
	var err error
	s.Topic, err = id(fields[1])
	partition := number(fields[2], 10, &err)
	s.Partition = uint32(partition)
	return fields[3], err == nil && partition>>32 == 0
}

// Page names a page of a partition's catalog, whose entries cover [Start, End).
type Page struct {
	Topic       [16]byte
	Partition   uint32
	Start, End  uint64
	Incarnation uint64 // of the owner that wrote it
	Unique      uint64 // random
}

// String returns the name.
func (p Page) String() string {
	return fmt.Sprintf("%s%020d-%020d-%d-%016x.catalog", OfPartition(p.Topic, p.Partition), p.Start, p.End, p.Incarnation, p.Unique)
}

// ParsePage is the reverse of String.
func ParsePage(name string) (Page, error) {
	var s Segment
	var err error
	rest, ok := s.inPartition(name)
	fields := strings.Split(strings.TrimSuffix(rest, ".catalog"), "-")
	if !ok || len(fields) != 4 {
		return Page{}, ErrForeign
	}
	p := Page{Topic: s.Topic, Partition: s.Partition}
	p.Start = number(fields[0], 10, &err)
	p.End = number(fields[1], 10, &err)
	p.Incarnation = number(fields[2], 10, &err)
	p.Unique = number(fields[3], 16, &err)
	if err != nil || p.String() != name {
		return Page{}, ErrForeign
	}
	return p, nil
}

// Cut names one cut of a broker: small segments of all its partitions of level
// object.
type Cut struct {
	Store       [16]byte
	Incarnation uint64
	Number      uint64 // counts the cuts of the incarnation
	Unique      uint64 // random
}

// String returns the name.
func (c Cut) String() string {
	return fmt.Sprintf("%s%x/%d-%020d-%016x.seg", cuts, c.Store, c.Incarnation, c.Number, c.Unique)
}

// ParseCut is the reverse of String.
func ParseCut(name string) (Cut, error) {
	var c Cut
	fields := strings.Split(name, "/")
	if len(fields) != 3 || fields[0]+"/" != cuts {
		return Cut{}, ErrForeign
	}
	var err error
	c.Store, err = id(fields[1])
	parts := strings.Split(strings.TrimSuffix(fields[2], ".seg"), "-")
	if err != nil || len(parts) != 3 {
		return Cut{}, ErrForeign
	}
	c.Incarnation = number(parts[0], 10, &err)
	c.Number = number(parts[1], 10, &err)
	c.Unique = number(parts[2], 16, &err)
	if err != nil || c.String() != name {
		return Cut{}, ErrForeign
	}
	return c, nil
}

// Manifest names an object with what the metadata say beside the catalogs.
type Manifest struct {
	History uint16 // of the cluster (R22)
	Index   uint64 // of the Raft log
}

// String returns the name. Names sort as the versions of the metadata do.
func (m Manifest) String() string { return fmt.Sprintf("%s%05d-%020d", Manifests, m.History, m.Index) }

// ParseManifest is the reverse of String.
func ParseManifest(name string) (Manifest, error) {
	history, index, _ := strings.Cut(strings.TrimPrefix(name, Manifests), "-")
	var err error
	n := number(history, 10, &err)
	m := Manifest{History: uint16(n), Index: number(index, 10, &err)}
	if err != nil || m.String() != name {
		return Manifest{}, ErrForeign
	}
	return m, nil
}

// History names the object by which a rebuild takes a history for itself.
func History(n uint16) string { return fmt.Sprintf("%s%05d", histories, n) }

// ParseHistory is the reverse of History.
func ParseHistory(name string) (uint16, error) {
	var err error
	n := number(strings.TrimPrefix(name, histories), 10, &err)
	if err != nil || History(uint16(n)) != name {
		return 0, ErrForeign
	}
	return uint16(n), nil
}

// OfTopic is what the names of all objects of a topic begin with, cuts aside.
func OfTopic(topic [16]byte) string { return fmt.Sprintf("%s%x/", topics, topic) }

// OfPartition is what the names of all objects of a partition begin with, cuts
// aside.
func OfPartition(topic [16]byte, partition uint32) string {
	return fmt.Sprintf("%s%d/", OfTopic(topic), partition)
}

// Incarnation is the run of a process that made an object which only the catalog
// can vouch for: a segment, a page or a cut. False: it is none of these.
func Incarnation(name string) (uint64, bool) {
	if s, err := ParseSegment(name); err == nil {
		return s.Incarnation, true
	}
	if p, err := ParsePage(name); err == nil {
		return p.Incarnation, true
	}
	if c, err := ParseCut(name); err == nil {
		return c.Incarnation, true
	}
	return 0, false
}

func id(text string) (out [16]byte, err error) {
	if len(text) != 2*len(out) {
		return out, ErrForeign
	}
	_, err = hex.Decode(out[:], []byte(text))
	return out, err
}

// number reads a number unless something failed before.
func number(text string, base int, err *error) uint64 {
	if *err != nil {
		return 0
	}
	n, e := strconv.ParseUint(text, base, 64)
	*err = e
	return n
}
