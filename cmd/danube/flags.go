package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/cmd/danube/settings"
)

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return fmt.Errorf("is not one of %s", strings.Join(c.allowed, ", "))
	}
	c.value = s
	return nil
}

// addChoice adds a flag that takes one of allowed, with completion.
func addChoice(cmd *cobra.Command, name, value, usage string, allowed ...string) *choice {
	c := &choice{value: value, allowed: allowed}
	c.add(cmd, name, "", usage)
	return c
}

func (c *choice) add(cmd *cobra.Command, name, short, usage string) {
	cmd.Flags().VarP(c, name, short, usage)
	// It fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(c.allowed, cobra.ShellCompDirectiveNoFileComp))
}

// addOutput adds -o. Without further names it is text or json.
func addOutput(cmd *cobra.Command, more ...string) *choice {
	c := &choice{value: "text", allowed: append([]string{"text", "json"}, more...)}
	c.add(cmd, "output", "o", "how to print: "+strings.Join(c.allowed, ", "))
	return c
}

// sizeFlag takes bytes with a unit: 512, 4KiB, 64MiB.
type sizeFlag int64

func (s *sizeFlag) String() string { return settings.FormatSize(int64(*s)) }
func (s *sizeFlag) Type() string   { return "size" }

func (s *sizeFlag) Set(text string) error {
	n, err := settings.ParseSize(text)
	*s = sizeFlag(n)
	return err
}

// addSize adds a flag for a number of bytes.
func addSize(fs *pflag.FlagSet, name string, value int64, usage string) *int64 {
	s := sizeFlag(value)
	fs.Var(&s, name, usage)
	return (*int64)(&s)
}

// durationFlag takes a time with a unit: 90s, 48h, 7d.
type durationFlag time.Duration

func (d *durationFlag) String() string { return settings.FormatDuration(time.Duration(*d)) }
func (d *durationFlag) Type() string   { return "duration" }

func (d *durationFlag) Set(text string) error {
	v, err := settings.ParseDuration(text)
	*d = durationFlag(v)
	return err
}

// addDuration adds a flag for a time that is not negative.
func addDuration(fs *pflag.FlagSet, name string, value time.Duration, usage string) *time.Duration {
	d := durationFlag(value)
	fs.Var(&d, name, usage)
	return (*time.Duration)(&d)
}

// countFlag takes a whole number that is not negative.
type countFlag int64

func (c *countFlag) String() string { return fmt.Sprint(int64(*c)) }
func (c *countFlag) Type() string   { return "number" }

func (c *countFlag) Set(text string) error {
	n, err := settings.ParseCount(text)
	*c = countFlag(n)
	return err
}

// addCount adds a flag for a number that is not negative.
func addCount(fs *pflag.FlagSet, name string, value int64, usage string) *int64 {
	c := countFlag(value)
	fs.Var(&c, name, usage)
	return (*int64)(&c)
}
