package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// configuration is `danube config`.
func (a *app) configuration() *cobra.Command {
	return group("config", "Check a configuration, or show the effective one", a.configCheck(), a.configShow())
}

func (a *app) configCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file and name every problem with its line",
		Args:  wantArgs("FILE"),
	}
	lenient := addLenient(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		s, err := readSettings(sources{file: args[0], lenient: *lenient})
		warnings, refused := s.refuse()
		warnings = append(s.unknown, warnings...)
		err = errors.Join(err, refused)
		if output.value == "json" {
			return errors.Join(printJSON(a.out, checkReport{args[0], err == nil, messages(err), warnings}), quietly(err, exitUsage))
		}
		for _, w := range warnings {
			a.noticef("danube: warning: %s", w)
		}
		if err != nil {
			return &failure{code: exitUsage, err: err}
		}
		fmt.Fprintf(a.out, "%s: valid\n", args[0])
		return nil
	}
	return cmd
}

// checkReport is config check -o json.
type checkReport struct {
	File     string   `json:"file"`
	Valid    bool     `json:"valid"`
	Problems []string `json:"problems"`
	Warnings []string `json:"warnings"`
}

// messages is the texts of a joined error, one problem each.
func messages(err error) []string {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, messages(e)...)
		}
		return all
	}
	return []string{err.Error()}
}

// quietly is the exit code without a text, for errors that were printed as part of the result.
func quietly(err error, code int) error {
	if err == nil {
		return nil
	}
	return &failure{code: code, err: errQuiet}
}

func (a *app) configShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effective configuration and where each value comes from",
		Args:  wantArgs(),
	}
	file := addConfigFlags(cmd)
	lenient := addLenient(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := readSettings(sources{file: a.configFile(*file), env: a.env, flags: cmd.Flags(), lenient: *lenient})
		if err != nil {
			return &failure{code: exitUsage, err: err}
		}
		for _, w := range s.unknown {
			a.noticef("danube: warning: %s", w)
		}
		var shown shownSettings
		for _, d := range settings() {
			shown.Settings = append(shown.Settings, shownSetting{d.key, s.shown(d.key), s.origins[d.key].where()})
		}
		if output.value == "json" {
			return printJSON(a.out, shown)
		}
		t := table{header: []string{"key", "value", "from"}}
		for _, d := range shown.Settings {
			t.add(d.Key, d.Value, d.From)
		}
		return t.print(a.out)
	}
	return cmd
}

// shownSettings is config show -o json.
type shownSettings struct {
	Settings []shownSetting `json:"settings"`
}

type shownSetting struct {
	Key   string `json:"key"`
	Value string `json:"value"`
	From  string `json:"from"` // default, file:line, the variable or the flag
}

// configFile is --config, else DANUBE_CONFIG.
func (a *app) configFile(flag string) string {
	if flag != "" {
		return flag
	}
	return a.getenv("DANUBE_CONFIG")
}

// addConfigFlags adds --config and one flag for each setting that has one. Their values are read by readSettings, which
// also checks them, so that a flag is judged like a line of the file.
func addConfigFlags(cmd *cobra.Command) *string {
	file := cmd.Flags().String("config", "", "configuration `FILE` in YAML (DANUBE_CONFIG)")
	for _, d := range settings() {
		switch {
		case d.flag == "":
		case d.kind == boolSetting:
			cmd.Flags().Bool(d.flag, d.value == "true", d.doc)
		default:
			cmd.Flags().String(d.flag, d.value, d.doc)
		}
	}
	return file
}

func addLenient(fs *pflag.FlagSet) *bool {
	return fs.Bool("config-lenient", false, "unknown keys are warnings, for a rollback to a version that lacks them")
}
