package cli

import (
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
its name in capitals, '_' for '-'), the configuration file, what the node remembers from
its last start, its default. The file is YAML, one 'setting: value' a line.`,
		Args: rootArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newConfigCheckCommand(env), newConfigShowCommand(env))
	return cmd
}

func newConfigCheckCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "check",
		Short:   "Say whether the configuration can be understood",
		Example: "  outboard config check --config outboard.yaml",
		Args:    noArgs,
		RunE: func(*cobra.Command, []string) error {
			// All that can be wrong was found while the flags were resolved.
			fmt.Fprintf(env.Stderr, "%s: right\n", orDash(env.config.file))
			return nil
		},
	}
	addAllSettings(cmd.Flags())
	return cmd
}

type configShowOptions struct{ output format }

// configValue is one setting as it would be used.
type configValue struct {
	Setting string `json:"setting"`
	Value   string `json:"value"`
	Source  string `json:"source"`
}

func newConfigShowCommand(env *Env) *cobra.Command {
	var opts configShowOptions
	cmd := &cobra.Command{
		Use:     "show",
		Short:   "Show every setting, its value and where that came from",
		Example: "  outboard config show\n  OUTBOARD_NAME=harbour outboard config show -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runConfigShow(env, opts, cmd.Flags()) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	addAllSettings(cmd.Flags())
	return cmd
}

func runConfigShow(env *Env, opts configShowOptions, flags *pflag.FlagSet) error {
	var values []configValue
	var rows [][]string
	for _, name := range settingNames {
		v := configValue{Setting: name, Value: flags.Lookup(name).Value.String(), Source: env.config.sources[name]}
		if name == "token" && v.Value != "" {
			v.Value = "(hidden)"
		}
		values = append(values, v)
		rows = append(rows, []string{v.Setting, orDash(v.Value), v.Source})
	}
	return opts.output.print(env, values, []string{"SETTING", "VALUE", "FROM"}, rows)
}

// addAllSettings gives a command every flag that is a setting.
func addAllSettings(flags *pflag.FlagSet) {
	var up upOptions
	var run runOptions
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	up.addFlags(all)
	run.addFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(settingNames, f.Name) {
			flags.AddFlag(f)
		}
	})
}
