package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/storage/segment"
)

// segment is `danube segment`.
func (a *app) segment() *cobra.Command {
	return group("segment", "Look into segment files, without a broker", a.segmentDump(), a.segmentVerify())
}

// segmentHeader is the header of a segment as it is printed.
type segmentHeader struct {
	Topic      string `json:"topic"`
	TopicID    string `json:"topic_id"`
	Partition  uint32 `json:"partition"`
	Base       uint64 `json:"base"`
	FirstEpoch uint64 `json:"first_epoch"`
	Epoch      uint64 `json:"epoch"`
	History    uint16 `json:"history"`
	Cluster    string `json:"cluster"`
	Store      string `json:"store"`
	Created    string `json:"created"`
}

// segmentFacts is what the footer says, or what was counted where there is none.
type segmentFacts struct {
	First     uint64 `json:"first"`
	End       uint64 `json:"end"` // behind the last message
	FirstTime string `json:"first_time,omitempty"`
	LastTime  string `json:"last_time,omitempty"`
	Batches   uint64 `json:"batches"`
	Messages  uint64 `json:"messages"`
	Marks     uint64 `json:"marks"`
	DataEnd   int64  `json:"data_end"`
	CRC       string `json:"crc"`
}

// segmentStretch is one stretch of a segment: a batch, or what is none.
type segmentStretch struct {
	Kind     string `json:"kind"`
	At       int64  `json:"at"`
	Bytes    int64  `json:"bytes"`
	From     uint64 `json:"from"`
	To       uint64 `json:"to"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Appended string `json:"append_time,omitempty"`
	Producer string `json:"producer,omitempty"`
	Session  uint32 `json:"session,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	Codec    string `json:"codec,omitempty"`
	Synced   uint64 `json:"synced,omitempty"`
	Error    string `json:"error,omitempty"`
}

// printedHeader is nil where the header is lost.
func printedHeader(c segment.Contents) *segmentHeader {
	if c.HeaderErr != nil {
		return nil
	}
	h := c.Header
	return &segmentHeader{
		Topic: h.Topic, TopicID: hex.EncodeToString(h.TopicID[:]), Partition: h.Partition, Base: h.Base, FirstEpoch: h.FirstEpoch,
		Epoch: h.Epoch, History: h.History, Cluster: hex.EncodeToString(h.Cluster[:]), Store: hex.EncodeToString(h.Store[:]),
		Created: render.Time(h.Created),
	}
}

func printedFacts(f segment.Facts) segmentFacts {
	p := segmentFacts{First: f.First, End: f.End, Batches: f.Batches, Messages: f.Messages, Marks: f.Marks, DataEnd: f.DataEnd,
		CRC: fmt.Sprintf("%08x", f.DataCRC)}
	if f.Messages > 0 {
		p.FirstTime, p.LastTime = render.Time(f.FirstTime), render.Time(f.LastTime)
	}
	return p
}

func printedStretch(st segment.Stretch) segmentStretch {
	kinds := map[segment.Kind]string{segment.Whole: "batch", segment.Damaged: "damaged", segment.Torn: "torn", segment.Zeros: "zeros", segment.Sealed: "footer"}
	p := segmentStretch{Kind: kinds[st.Kind], At: st.At, Bytes: st.Len, From: st.From, To: st.To}
	if st.Err != nil {
		p.Error = st.Err.Error()
	}
	if b := st.Batch; b != nil {
		if b.Control() {
			p.Kind = "mark"
		}
		p.Epoch, p.Appended, p.Producer = b.Epoch(), render.Time(b.AppendTime()), fmt.Sprintf("%016x", b.Producer())
		p.Session, p.Sequence, p.Codec, p.Synced = b.Session(), b.Sequence(), b.Codec().String(), b.Synced()
	}
	return p
}

// openSegment opens a segment file and tells its size.
func openSegment(name string) (*os.File, int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", name)
	}
	if err != nil {
		return nil, 0, errors.Join(err, f.Close())
	}
	return f, info.Size(), nil
}

func (a *app) segmentDump() *cobra.Command {
	cmd := &cobra.Command{Use: "dump FILE", Short: "Print every batch of a segment file, whole or not", Args: wantArgs("FILE")}
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		f, size, err := openSegment(args[0])
		if err != nil {
			return fmt.Errorf("dump segment: %w", err)
		}
		defer f.Close()
		w := bufio.NewWriterSize(a.out, 64<<10)
		if output.value == "json" {
			err = dumpJSON(w, f, size, args[0])
		} else {
			err = dumpText(w, f, size, args[0])
		}
		if err = errors.Join(err, w.Flush()); err != nil {
			return fmt.Errorf("dump segment %s: %w", args[0], err)
		}
		return nil
	}
	return cmd
}

// dumpJSON writes one document, stretch by stretch: a segment may hold millions.
func dumpJSON(w io.Writer, r io.ReaderAt, size int64, name string) error {
	file, err := json.Marshal(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "{\"file\": %s, \"size\": %d, \"stretches\": [", file, size)
	sep := "\n  "
	batches := 0
	c, err := segment.Dump(r, size, func(st segment.Stretch) error {
		if st.Batch != nil {
			batches++
		}
		b, err := json.Marshal(printedStretch(st))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s%s", sep, b)
		sep = ",\n  "
		return err
	})
	if err != nil {
		return err
	}
	header, err := json.Marshal(printedHeader(c))
	if err != nil {
		return err
	}
	footer := []byte("null")
	if c.Footer != nil {
		if footer, err = json.Marshal(printedFacts(c.Footer.Facts)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "\n], \"header\": %s, \"footer\": %s}\n", header, footer); err != nil {
		return err
	}
	return isSegment(c, batches)
}

// isSegment is an error of a file in which nothing of a segment was found.
func isSegment(c segment.Contents, batches int) error {
	if c.HeaderErr != nil && c.Footer == nil && batches == 0 {
		return errors.New("not a segment: no header, no batch and no footer in it")
	}
	return nil
}

func dumpText(w io.Writer, r io.ReaderAt, size int64, name string) error {
	if h, n, err := segment.ReadHeader(r); err == nil {
		c := segment.Contents{Header: h, HeaderSize: n}
		printHeader(w, printedHeader(c))
	} else {
		fmt.Fprintf(w, "header    %v\n", err)
	}
	fmt.Fprintf(w, "file      %s, %s\n\n", name, render.Size(size))
	const columns = "%-8s %12v %9v  %-25s %-18s %-24s %-5s %s\n"
	fmt.Fprintf(w, columns, "KIND", "AT", "BYTES", "OFFSETS", "EPOCH", "APPENDED", "CODEC", "PRODUCER/SESSION/SEQUENCE")
	batches := 0
	c, err := segment.Dump(r, size, func(st segment.Stretch) error {
		p := printedStretch(st)
		detail, epoch := p.Error, ""
		if st.Batch != nil {
			batches++
			epoch = fmt.Sprintf("%x", p.Epoch)
			detail = fmt.Sprintf("%s/%08x/%d", p.Producer, p.Session, p.Sequence)
		}
		span := ""
		if p.From < p.To {
			span = render.Offsets(p.From, p.To)
		}
		_, err := fmt.Fprintf(w, columns, p.Kind, p.At, p.Bytes, span, epoch, p.Appended, p.Codec, detail)
		return err
	})
	if err == nil {
		err = isSegment(c, batches)
	}
	if err != nil || c.Footer == nil {
		return err
	}
	f := c.Footer.Facts
	_, err = fmt.Fprintf(w, "\nsealed: %s in %s, offsets %s\n", render.Plural(f.Messages, "message"), batchCount(f.Batches), render.Offsets(f.First, f.End))
	return err
}

func printHeader(w io.Writer, h *segmentHeader) {
	fmt.Fprintf(w, "topic     %s:%d (%s)\nbase      %d\nepoch     %x\nstore     %s\ncluster   %s\ncreated   %s\n",
		h.Topic, h.Partition, h.TopicID, h.Base, h.Epoch, h.Store, h.Cluster, h.Created)
}

// segmentReport is segment verify -o json.
type segmentReport struct {
	File     string           `json:"file"`
	Size     int64            `json:"size"`
	Sealed   bool             `json:"sealed"`
	Header   *segmentHeader   `json:"header"`
	Facts    segmentFacts     `json:"facts"`
	Problems []segmentProblem `json:"problems"`
}

type segmentProblem struct {
	File string `json:"file"`
	At   int64  `json:"at"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	What string `json:"what"`
}

// verifySegment reads one segment file to its end.
func verifySegment(name string) (segmentReport, error) {
	f, size, err := openSegment(name)
	if err != nil {
		return segmentReport{}, err
	}
	defer f.Close()
	rep, err := segment.Verify(f, size)
	if err != nil {
		return segmentReport{}, fmt.Errorf("%s: %w", name, err)
	}
	out := segmentReport{File: name, Size: size, Sealed: rep.Footer != nil, Header: printedHeader(rep.Contents), Facts: printedFacts(rep.Facts)}
	for _, p := range rep.Problems {
		out.Problems = append(out.Problems, segmentProblem{File: name, At: p.At, From: p.From, To: p.To, What: p.Err.Error()})
	}
	return out, nil
}

func (a *app) segmentVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify FILE",
		Short: "Check a segment file against its own CRCs, counts and index",
		Long:  "Exit code 1 when something is wrong. The file a running broker writes to ends without a footer, perhaps torn.",
		Args:  wantArgs("FILE"),
	}
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		rep, err := verifySegment(args[0])
		if err != nil {
			return fmt.Errorf("verify segment: %w", err)
		}
		if output.value == "json" {
			err = render.JSON(a.out, rep)
		} else {
			err = printSegmentReport(a.out, rep)
		}
		if err == nil && len(rep.Problems) > 0 {
			err = fmt.Errorf("verify segment %s: %s", args[0], render.Plural(len(rep.Problems), "problem"))
		}
		return err
	}
	return cmd
}

func printSegmentReport(w io.Writer, r segmentReport) error {
	if r.Header != nil {
		printHeader(w, r.Header)
	}
	state := "not sealed"
	if r.Sealed {
		state = "sealed"
	}
	fmt.Fprintf(w, "file      %s, %s, %s\ncontent   %s, offsets %s\n", r.File, render.Size(r.Size), state,
		render.Plural(r.Facts.Messages, "message"), render.Offsets(r.Facts.First, r.Facts.End))
	return printProblems(w, r.Problems)
}

func printProblems(w io.Writer, problems []segmentProblem) error {
	if len(problems) == 0 {
		_, err := fmt.Fprintln(w, "no problems")
		return err
	}
	t := render.Table{Header: []string{"file", "at", "offsets", "problem"}}
	for _, p := range problems {
		span := ""
		if p.From < p.To {
			span = render.Offsets(p.From, p.To)
		}
		t.Add(p.File, fmt.Sprint(p.At), span, p.What)
	}
	return t.Print(w)
}

func batchCount(n uint64) string {
	if n == 1 {
		return "1 batch"
	}
	return render.Grouped(n) + " batches"
}
