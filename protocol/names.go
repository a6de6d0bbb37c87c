package protocol

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// PartitionOf is the partition, from 0 to n-1, that a message with this routing
// key goes to: XXH64 of the raw key bytes with seed 0, unsigned, modulo n. Every
// client must agree; testdata/key-vectors.json holds examples. n must be above 0.
func PartitionOf(key []byte, n int) int { return int(xxhash.Sum64(key) % uint64(n)) }

// ProducerID is the producer id of a named producer: the first 8 bytes of the
// SHA-256 of its name, little-endian. An unnamed producer takes a random one.
func ProducerID(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.LittleEndian.Uint64(sum[:])
}

// DefaultNamespace is where a topic name without a slash lies.
const DefaultNamespace = "default"

// MaxNamePart is the longest part of a name, in bytes.
const MaxNamePart = 255

// MaxPartitions bounds the partitions of a topic.
const MaxPartitions = 1024

// allowed is what errors say about names.
const allowed = "allowed are letters, digits and . _ - (at most 255 bytes a part)"

// ParseTopic reads a topic as people write it: NAME, /NAMESPACE/NAME, either
// with :N behind it for one partition. It returns the full name and N, or -1
// for the whole topic. Its error is an [*Error] with CodeBadName.
func ParseTopic(s string) (full string, partition int, err error) {
	name, number, one := strings.Cut(s, ":")
	partition = -1
	if one {
		if partition, err = parsePartition(number); err != nil {
			return "", -1, Errorf(CodeBadName, "topic %q: %s", clip(s), err.Error())
		}
	}
	namespace := DefaultNamespace
	if rest, ok := strings.CutPrefix(name, "/"); ok {
		if namespace, name, ok = strings.Cut(rest, "/"); !ok {
			return "", -1, Errorf(CodeBadName, "topic %q: write NAME or /NAMESPACE/NAME; %s", clip(s), allowed)
		}
	}
	for _, part := range []string{namespace, name} {
		if err := checkPart(part); err != nil {
			return "", -1, Errorf(CodeBadName, "topic %q: %s", clip(s), err.Error())
		}
	}
	return "/" + namespace + "/" + name, partition, nil
}

// CheckName checks one name that stands alone: a namespace, subscription or
// producer, which what says. Its error is an [*Error] with CodeBadName.
func CheckName(what, name string) error {
	if err := checkPart(name); err != nil {
		return Errorf(CodeBadName, "%s %q: %s", what, clip(name), err.Error())
	}
	return nil
}

func checkPart(s string) error {
	if s == "" {
		return fmt.Errorf("the name is empty; %s", allowed)
	}
	if len(s) > MaxNamePart {
		return fmt.Errorf("%d bytes are too long; %s", len(s), allowed)
	}
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		default:
			return fmt.Errorf("%q is not allowed; %s", r, allowed)
		}
	}
	return nil
}

func parsePartition(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n >= MaxPartitions || s[0] == '+' {
		return -1, fmt.Errorf("behind the colon stands the number of a partition, 0 to %d", MaxPartitions-1)
	}
	return int(n), nil
}

// clip keeps a name that may have come from a stranger short enough for a message.
func clip(s string) string {
	const most = 300
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}
