package main

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/settings"
)

// flagError turns what pflag says into the house's words, with the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	name := commandName(cmd)
	if !cmd.HasParent() {
		name = "danube"
		if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
			return fail.WithHint(fail.Usagef("unknown flag --%s", missing.GetSpecifiedName()), "danube --help lists the commands and their flags")
		}
	}
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		given := missing.GetSpecifiedName()
		if len(given) == 1 {
			return fail.WithHint(fail.Usagef("%s: unknown flag -%s", name, given), "danube %s --help lists the flags", name)
		}
		if near := settings.Nearest(given, flagNames(cmd)); near != "" {
			return fail.WithHint(fail.Usagef("%s: unknown flag --%s", name, given), "did you mean --%s?", near)
		}
		return fail.WithHint(fail.Usagef("%s: unknown flag --%s", name, given), "danube %s --help lists the flags", name)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fail.Usagef("%s: --%s %s: %w", name, bad.GetFlag().Name, bad.GetValue(), bad.Unwrap())
	}
	return fail.Usagef("%s: %w", name, err)
}

// commandName is the command without the program: "topic create".
func commandName(cmd *cobra.Command) string {
	path := cmd.CommandPath()
	if _, rest, ok := strings.Cut(path, " "); ok {
		return rest
	}
	return path
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
