// Package recovery judges one segment file by its bytes: whether it is the file
// that its place says, what of it may be read, what is damage, and what a write
// left that was never finished (R9, R10).
//
// It changes nothing. What follows for the partition, and whether a torn end is
// cut off, is decided by package wal, which knows what was acknowledged.
package recovery

import (
	"fmt"
	"io"

	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/segment"
)

// Damage says that the messages [From, To) cannot be read: File is wrong at
// position At. The bytes are kept.
type Damage struct {
	From, To uint64
	File     string
	At       int64
	Err      error
}

func (d *Damage) Error() string {
	return fmt.Sprintf("offsets %d to %d are damaged: %s at position %d: %v", d.From, d.To, d.File, d.At, d.Err)
}

func (d *Damage) Unwrap() error { return d.Err }

// ForeignError says that a segment file was written by another store, or for
// another partition: nothing of it is served (R9).
type ForeignError struct {
	File  string
	Store [16]byte // the store that wrote it
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s is foreign: it was written by store %x", e.File, e.Store)
}

// Place is where a segment file lies, and so what it has to be.
type Place struct {
	Store [16]byte
	ID    hotdir.ID
	Name  string // of the file, for errors
	Base  uint64
	Epoch uint64
}

// Header reads the header of the file and compares it with the place. It returns
// the header's length in bytes. Errors: *ForeignError, those of segment.ReadHeader,
// and that the file was renamed.
func (p Place) Header(r io.ReaderAt) (segment.Header, int, error) {
	header, size, err := segment.ReadHeader(r)
	if err != nil {
		return header, size, err
	}
	id := hotdir.ID{Topic: header.TopicID, Partition: header.Partition}
	switch {
	case header.Store != p.Store || id != p.ID:
		err = &ForeignError{File: p.Name, Store: header.Store}
	case header.Base != p.Base || header.Epoch != p.Epoch:
		err = fmt.Errorf("header of base %d and epoch %d: the file was renamed", header.Base, header.Epoch)
	}
	return header, size, err
}
