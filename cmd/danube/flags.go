package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/protocol"
)

// choice is a flag that takes one of a few words.
type choice struct {
	value   string
	allowed []string
	later   []string // known, and not in this version: taken, so that it is the broker who refuses them
}

func (c *choice) String() string { return c.value }
func (c *choice) Type() string   { return strings.Join(c.allowed, "|") }

func (c *choice) Set(s string) error {
	switch {
	case slices.Contains(c.allowed, s) || slices.Contains(c.later, s):
	case len(c.allowed) == 1:
		return fmt.Errorf("is not %s%s", c.allowed[0], c.absent())
	default:
		return fmt.Errorf("is not one of %s%s", strings.Join(c.allowed, ", "), c.absent())
	}
	c.value = s
	return nil
}

// absent says what this version does not have, for help and errors.
func (c *choice) absent() string {
	if len(c.later) == 0 {
		return ""
	}
	verb := " are"
	if len(c.later) == 1 {
		verb = " is"
	}
	return " (" + strings.Join(c.later, " and ") + verb + " not in this version)"
}

// addChoice adds a flag that takes one of allowed, with completion.
func addChoice(cmd *cobra.Command, name, value, usage string, allowed ...string) *choice {
	c := &choice{value: value, allowed: allowed}
	c.add(cmd, name, "", usage)
	return c
}

// addType adds the flag for a type of subscription.
func addType(cmd *cobra.Command, usage string) *choice {
	c := &choice{value: protocol.Exclusive.String(), allowed: []string{protocol.Exclusive.String(), protocol.Shared.String()},
		later: []string{protocol.Failover.String(), protocol.KeyShared.String()}}
	c.add(cmd, "type", "", usage+c.absent())
	return c
}

// addDurability adds the flag for a level of durability.
func addDurability(cmd *cobra.Command, usage string) *choice {
	c := &choice{allowed: []string{"local", "object"}, later: []string{"warm"}}
	c.add(cmd, "durability", "", usage+c.absent())
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
