package manifest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// Beat says which cluster a bucket belongs to. The cluster's leader writes it anew every minute.
type Beat struct {
	Cluster [16]byte
	Name    string // of the cluster
	History uint16
	Index   uint64 // of the Raft log
	Time    time.Time
	Store   [16]byte // who wrote it
}

// Fresh is how old a beat is at most whose cluster counts as alive.
const Fresh = 5 * time.Minute

// beatJSON is a beat for those who look into the bucket.
type beatJSON struct {
	Version int    `json:"version"`
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
	History uint16 `json:"history"`
	Index   uint64 `json:"index"`
	Time    string `json:"time"`
	Store   string `json:"store"`
}

// Encode returns the beat as one line of JSON, and its CRC-32C in hexadecimal as another.
func (b Beat) Encode() []byte {
	line, err := json.Marshal(beatJSON{
		Version: version, Cluster: hex.EncodeToString(b.Cluster[:]), Name: b.Name, History: b.History, Index: b.Index,
		Time: b.Time.UTC().Format(time.RFC3339), Store: hex.EncodeToString(b.Store[:]),
	})
	if err != nil {
		panic(fmt.Sprintf("manifest: encode a beat: %v", err)) // strings and numbers encode
	}
	return fmt.Appendf(nil, "%s\n%08x\n", line, checksum(line))
}

// DecodeBeat reads what Encode wrote. Errors: ErrDamaged, *VersionError.
func DecodeBeat(b []byte) (Beat, error) {
	line, sum, _ := bytes.Cut(b, []byte("\n"))
	want, err := strconv.ParseUint(string(bytes.TrimSuffix(sum, []byte("\n"))), 16, 32)
	if err != nil || uint32(want) != checksum(line) {
		return Beat{}, fmt.Errorf("%w: the cluster's object fails its checksum", ErrDamaged)
	}
	var j beatJSON
	if err := json.Unmarshal(line, &j); err != nil {
		return Beat{}, fmt.Errorf("%w: the cluster's object: %w", ErrDamaged, err)
	}
	if j.Version != version {
		return Beat{}, &VersionError{What: "the cluster's object", Found: j.Version, Known: version}
	}
	out := Beat{Name: j.Name, History: j.History, Index: j.Index}
	if out.Time, err = time.Parse(time.RFC3339, j.Time); err != nil {
		return Beat{}, fmt.Errorf("%w: the cluster's object: %w", ErrDamaged, err)
	}
	if out.Cluster, err = parseID(j.Cluster); err == nil {
		out.Store, err = parseID(j.Store)
	}
	if err != nil {
		return Beat{}, fmt.Errorf("%w: the cluster's object: %w", ErrDamaged, err)
	}
	return out, nil
}

func parseID(text string) (id [16]byte, err error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, fmt.Errorf("id %q", text)
	}
	return [16]byte(b), nil
}
