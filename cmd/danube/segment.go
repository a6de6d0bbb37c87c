package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/storage/cold/drivers"
)

// segment is `danube segment`.
func (a *app) segment() *cobra.Command {
	return group("segment", "Look into segment files, without a broker", a.segmentDump(), a.segmentVerify())
}

const sourceHelp = "FILE is a file, file:///path, or s3://bucket/key, gs://… or azblob://… with the parameters of storage.durable.url (its\n" +
	"prefix too); credentials come from where the broker takes them. Objects are read by ranges, the end first. A cut, which\n" +
	"holds segments of many partitions, is listed; --piece N takes one of them. A page of a catalog is listed too."

func (a *app) segmentDump() *cobra.Command {
	cmd := &cobra.Command{
		Use: "dump FILE-OR-URL", Short: "Print every batch of a segment file or object, whole or not", Long: sourceHelp, Args: wantArgs("FILE-OR-URL"),
	}
	piece := addPiece(cmd)
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := offline.Open(cmd.Context(), args[0], drivers.Open)
		if err != nil {
			return fmt.Errorf("dump segment: %w", err)
		}
		return errors.Join(s.Dump(a.out, *piece, output.value == "json"), s.Close())
	}
	return cmd
}

// addPiece adds the choice among the pieces of a cut.
func addPiece(cmd *cobra.Command) *int {
	return cmd.Flags().Int("piece", offline.AllPieces, "of a cut, the piece `N` alone")
}

func (a *app) segmentVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify FILE-OR-URL",
		Short: "Check a segment file or object against its own CRCs, counts and index",
		Long:  "Exit code 1 when something is wrong. The file a running broker writes to ends without a footer, perhaps torn.\n" + sourceHelp,
		Args:  wantArgs("FILE-OR-URL"),
	}
	piece := addPiece(cmd)
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := offline.Open(cmd.Context(), args[0], drivers.Open)
		if err != nil {
			return fmt.Errorf("verify segment: %w", err)
		}
		rep, err := s.Verify(*piece)
		if err = errors.Join(err, s.Close()); err != nil {
			return fmt.Errorf("verify segment: %w", err)
		}
		if output.value == "json" {
			err = render.JSON(a.out, rep)
		} else {
			err = rep.Print(a.out)
		}
		if err == nil && len(rep.Found()) > 0 {
			err = fmt.Errorf("verify segment %s: %s", s.Name, render.Plural(len(rep.Found()), "problem"))
		}
		return err
	}
	return cmd
}
