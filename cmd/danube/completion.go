package main

import (
	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/fail"
)

func (a *app) completion() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish|powershell",
		Short: "Print a completion script for a shell",
		Example: "  source <(danube completion bash)\n" +
			"  danube completion zsh > \"${fpath[1]}/_danube\"\n" +
			"  danube completion fish | source",
		Args:      wantArgs("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish", "powershell"},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		switch args[0] {
		case "bash":
			return root.GenBashCompletionV2(a.out, true)
		case "zsh":
			return root.GenZshCompletion(a.out)
		case "fish":
			return root.GenFishCompletion(a.out, true)
		case "powershell":
			return root.GenPowerShellCompletionWithDesc(a.out)
		}
		return fail.Usagef("completion: %q is not one of bash, zsh, fish, powershell", args[0])
	}
	return cmd
}
