package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/pipe"
	"github.com/danubemq/danube/cmd/danube/render"
)

func (a *app) topicPeek() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "peek TOPIC[:N]",
		Short:   "Show messages that are there, without any effect on them",
		Example: "  danube topic peek orders --offset 1000 --count 5",
		Args:    wantArgs("TOPIC"),
	}
	from := cmd.Flags().String("offset", "earliest", "first `OFFSET` to show, or earliest, a time, -15m")
	count := addCount(cmd.Flags(), "count", 10, "how many to show, at most")
	output := addOutput(cmd, "raw")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, _, err := topicPart(args[0])
		if err != nil {
			return err
		}
		start, err := parsePosition(*from, a.now())
		if err != nil {
			return fail.Usagef("--offset: %w", err)
		}
		ctx := cmd.Context()
		c, err := a.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		r, err := c.Reader(ctx, args[0], client.ReaderConfig{From: start, ToEnd: true, OnSuperseded: a.tellGap})
		if err != nil {
			return explained(fail.Doing(err, "peek into %s", args[0]), name)
		}
		defer r.Close()
		messages, err := a.peekInto(ctx, r, *count)
		if err != nil {
			return fail.Doing(err, "peek into %s", args[0])
		}
		return printPeek(a.out, messages, output.value)
	}
	return cmd
}

// peekInto reads up to count messages that are there. What is missing is told as it is met.
func (a *app) peekInto(ctx context.Context, r *client.Reader, count int64) ([]client.Message, error) {
	var messages []client.Message
	for int64(len(messages)) < count {
		m, err := r.Next(ctx)
		gap, isGap := errors.AsType[*client.GapError](err)
		switch {
		case isGap:
			a.tellGap(*gap)
		case errors.Is(err, io.EOF):
			return messages, nil
		case err != nil:
			return nil, err
		default:
			messages = append(messages, m)
		}
	}
	return messages, nil
}

// printPeek prints messages as a table, as one JSON document, or as consume would.
func printPeek(w io.Writer, messages []client.Message, format string) error {
	var b []byte
	switch format {
	case "raw":
		for i := range messages {
			b = pipe.AppendRaw(b, &messages[i])
		}
	case "json":
		b = append(b, "{\"messages\": ["...)
		for i := range messages {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, "\n  "...)
			b = pipe.AppendJSON(b, &messages[i])
			b = b[:len(b)-1]
		}
		b = append(b, "\n]}\n"...)
	default:
		t := render.Table{Header: []string{"partition", "offset", "appended", "size", "key", "payload"}}
		for i := range messages {
			m := &messages[i]
			t.Add(strconv.Itoa(m.Partition), render.U64(m.Offset), render.Time(m.AppendTime.UnixMilli()), render.Size(int64(len(m.Payload))),
				clipped(m.Key, 30), clipped(m.Payload, 60))
		}
		return t.Print(w)
	}
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("write messages: %w", err)
	}
	return nil
}

// clipped is the beginning of some bytes, safe for a terminal.
func clipped(b []byte, most int) string {
	cut := b
	if len(b) > most {
		cut = b[:most]
	}
	s := string(pipe.AppendText(nil, &client.Message{Payload: cut}))
	s = strings.ReplaceAll(s[:len(s)-1], "\t", `\t`)
	if len(b) > most {
		s += "…"
	}
	return s
}
