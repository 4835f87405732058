package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newConfigCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and show the configuration",
		Long: `Check and show the configuration.

A setting comes from, in this order: its flag, its environment variable (OUTBOARD_ and
its name in capitals, '_' for '-'), the configuration file, the node's last start (node.yaml
in its data folder), its default. The file is YAML, one 'setting: value' a line.`,
		Example: "  outboard config check --config outboard.yaml\n  outboard config show",
		Args:    rootArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand(env), newConfigShowCommand(env))
	return cmd
}

type configCheckOptions struct {
	up  upOptions
	run runOptions
}

func newConfigCheckCommand(env *Env) *cobra.Command {
	var opts configCheckOptions
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Check the configuration",
		Example: "  outboard config check --config outboard.yaml",
		Args:    noArgs,
		RunE:    func(*cobra.Command, []string) error { return runConfigCheck(env, &opts) },
	}
	addAllSettings(cmd.Flags(), &opts.up, &opts.run)
	return cmd
}

// runConfigCheck reports what `outboard up` and `outboard run` refuse before they start anything.
// The flags are resolved by now, which has reported values that can't be read.
func runConfigCheck(env *Env, opts *configCheckOptions) error {
	if _, err := opts.up.newNode(env); err != nil {
		return err
	}
	if err := opts.run.validate(); err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "%s: no mistakes\n", cmp.Or(env.config.file, "flags and environment, without a file"))
	return nil
}

type configShowOptions struct{ output format }

// configValue is one setting with the value that a command would use.
type configValue struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Source  string `json:"source"`
}

func newConfigShowCommand(env *Env) *cobra.Command {
	var opts configShowOptions
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show every setting with its value and source",
		Example: "  outboard config show\n  OUTBOARD_NAME=harbour outboard config show -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runConfigShow(env, opts, cmd.Flags()) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	addAllSettings(cmd.Flags(), new(upOptions), new(runOptions))
	return cmd
}

func runConfigShow(env *Env, opts configShowOptions, flags *pflag.FlagSet) error {
	var values []configValue
	var rows [][]string
	for _, name := range settingNames {
		v := configValue{Setting: name, Value: settingText(flags.Lookup(name)), Source: env.config.sources[name]}
		if name == "token" && v.Value != "" {
			v.Value = "(hidden)"
		}
		values = append(values, v)
		rows = append(rows, []string{v.Setting, orDash(v.Value), v.Source})
	}
	return opts.output.print(env, values, []string{"SETTING", "VALUE", "FROM"}, rows)
}

// addAllSettings adds every flag that is a setting to a command. The values of the other flags of up
// and run are their defaults.
func addAllSettings(flags *pflag.FlagSet, up *upOptions, run *runOptions) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	up.addFlags(all)
	run.addFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(settingNames, f.Name) {
			flags.AddFlag(f)
		}
	})
}
