package view

import (
	"fmt"
	"io"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/protocol"
)

// Audit prints what the cold tier holds, by verdict, and what of it is not as it should be.
func Audit(w io.Writer, r protocol.AuditReport) error {
	fmt.Fprintf(w, "store  %s\n", r.Store)
	if r.Awaited {
		fmt.Fprintln(w, "audit  awaited: nothing that earlier metadata may have known of is deleted before `danube cluster audit --done`")
	}
	fmt.Fprintln(w)
	t := render.Table{Header: []string{"verdict", "objects", "size", "sound"}}
	for _, x := range r.Tallies {
		t.Add(x.Verdict, render.Grouped(x.Objects), render.Size(x.Bytes), render.YesNo(x.Sound))
	}
	if err := t.Print(w); err != nil || len(r.Findings) == 0 {
		return err
	}
	fmt.Fprintln(w)
	found := render.Table{Header: []string{"verdict", "size", "should be", "object"}}
	for _, f := range r.Findings {
		found.Add(f.Verdict, render.Size(f.Bytes), render.Size(f.Want), f.Key)
	}
	if err := found.Print(w); err != nil || r.More == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "and %s more\n", render.Grouped(r.More))
	return err
}
