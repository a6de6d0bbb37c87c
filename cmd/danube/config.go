package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
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
		warnings, err := settings.Check(settings.Sources{File: args[0], Lenient: *lenient})
		if output.value == "json" {
			return errors.Join(render.JSON(a.out, checkReport{args[0], err == nil, messages(err), warnings}), fail.Quietly(err, fail.Usage))
		}
		for _, w := range warnings {
			a.noticef("danube: warning: %s", w)
		}
		if err != nil {
			return fail.With(fail.Usage, err)
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

func (a *app) configShow() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the effective configuration and where each value comes from",
		Args:  wantArgs(),
	}
	file := addConfigFlags(cmd, false)
	lenient := addLenient(cmd.Flags())
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src := settings.Sources{File: a.configFile(*file), Env: a.env, Flags: cmd.Flags(), Lenient: *lenient}
		all, warnings, err := settings.Show(src)
		if err != nil {
			return fail.With(fail.Usage, err)
		}
		for _, w := range warnings {
			a.noticef("danube: warning: %s", w)
		}
		if output.value == "json" {
			return render.JSON(a.out, shownSettings{all})
		}
		t := render.Table{Header: []string{"key", "value", "from"}}
		for _, d := range all {
			t.Add(d.Key, d.Value, d.From)
		}
		return t.Print(a.out)
	}
	return cmd
}

// shownSettings is config show -o json.
type shownSettings struct {
	Settings []settings.Shown `json:"settings"`
}

// configFile is --config, else DANUBE_CONFIG.
func (a *app) configFile(flag string) string {
	if flag != "" {
		return flag
	}
	return a.getenv("DANUBE_CONFIG")
}

// addConfigFlags adds --config and the flags of settings.
func addConfigFlags(cmd *cobra.Command, alone bool) *string {
	file := cmd.Flags().String("config", "", "configuration `FILE` in YAML (DANUBE_CONFIG)")
	settings.AddFlags(cmd.Flags(), alone)
	return file
}

func addLenient(fs *pflag.FlagSet) *bool {
	return fs.Bool("config-lenient", false, "unknown keys are warnings, for a rollback to a version that lacks them")
}
