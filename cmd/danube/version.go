package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/protocol"
)

// Set by the linker (-X main.release=… -X main.commit=…); a plain build says what it is.
var (
	release = "0.1.0-dev"
	commit  = ""
)

// versionReport is version -o json.
type versionReport struct {
	Version  string        `json:"version"`
	Commit   string        `json:"commit,omitempty"`
	Go       string        `json:"go"`
	Platform string        `json:"platform"`
	Formats  formatVersion `json:"formats"`
}

// formatVersion is the version of each format that this binary writes.
type formatVersion struct {
	Protocol int `json:"protocol"`
	Batch    int `json:"batch"`
	Segment  int `json:"segment"`
}

func (a *app) version() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "Print the version and the formats it speaks", Args: wantArgs()}
	output := addOutput(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		v := versionReport{
			Version: release, Commit: commit, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			Formats: formatVersion{Protocol: protocol.Version, Batch: 1, Segment: 1},
		}
		if output.value == "json" {
			return render.JSON(a.out, v)
		}
		fmt.Fprintf(a.out, "danube %s\n", v.Version)
		if v.Commit != "" {
			fmt.Fprintf(a.out, "commit   %s\n", v.Commit)
		}
		fmt.Fprintf(a.out, "go       %s %s\nformats  protocol %d, batch %d, segment %d\n",
			v.Go, v.Platform, v.Formats.Protocol, v.Formats.Batch, v.Formats.Segment)
		return nil
	}
	return cmd
}
