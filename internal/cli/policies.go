package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric/policy"
)

type policiesOptions struct{ output format }

func newPoliciesCommand(env *Env) *cobra.Command {
	var opts policiesOptions
	cmd := &cobra.Command{
		Use:   "policies",
		Short: "List the policies of calls that are in force",
		Long: `List the policies of calls that are in force.

The counts are this node's, since the policies were applied. A file of policies is applied as
a whole, while calls flow; eight versions are kept.`,
		Example: `  outboard policies
  outboard policies -o json
  outboard policies apply policies.yaml
  outboard policies rollback`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPolicies(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newPoliciesApplyCommand(env), newPoliciesRollbackCommand(env), newPoliciesShowCommand(env))
	return cmd
}

func runPolicies(ctx context.Context, env *Env, opts policiesOptions) error {
	p, err := env.client().Policies(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, l := range p.Policies {
		rows = append(rows, []string{
			l.Name, l.Kind, l.Applies, orDash(l.When),
			strconv.FormatUint(l.Calls, 10), strconv.FormatUint(l.Acted, 10), strconv.FormatUint(l.Refused, 10), strconv.FormatUint(l.Failed, 10),
		})
	}
	return opts.output.print(env, p, []string{"POLICY", "KIND", "APPLIES TO", "WHEN", "CALLS", "ACTED", "REFUSED", "FAILED"}, rows)
}

// ---- apply

type policiesApplyOptions struct {
	output format
	check  bool
}

func newPoliciesApplyCommand(env *Env) *cobra.Command {
	var opts policiesApplyOptions
	cmd := &cobra.Command{
		Use:   "apply FILE",
		Short: "Apply a file of policies in the whole pool",
		Long: `Apply a file of policies in the whole pool. It replaces the policies in force.

The file is checked first, expressions against the services' types: a mistake is reported
with its line, and nothing changes. Calls in flight end under the policies with which they
began. WebAssembly modules that the file names are read relative to its folder. FILE may be
- for standard input.`,
		Example: `  outboard policies apply policies.yaml
  outboard policies apply --check policies.yaml`,
		Args: oneArg("name one file of policies, or - for standard input"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runPoliciesApply(cmd.Context(), env, opts, args[0])
		},
		ValidArgsFunction: completeFiles("yaml", "yml"),
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().BoolVar(&opts.check, "check", false, "only check the file")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runPoliciesApply(ctx context.Context, env *Env, opts policiesApplyOptions, name string) error {
	text, err := readFile(env, name)
	if err != nil {
		return err
	}
	// Nodes don't see this machine's files, so modules are sent within the text.
	text, err = policy.Inline(name, text, func(module string) ([]byte, error) {
		if !filepath.IsAbs(module) {
			module = filepath.Join(filepath.Dir(name), module)
		}
		return os.ReadFile(module)
	})
	if err != nil {
		return outboard.Errorf(outboard.Invalid, "", "%w", err)
	}
	v, err := env.client().ApplyPolicies(ctx, client.PolicyFile{Name: name, Text: string(text), Check: opts.check})
	if err != nil {
		return err
	}
	if opts.check {
		printSafe(env.Stderr, "%s: no mistakes\n", name)
		return nil
	}
	return printVersion(env, opts.output, v)
}

func readFile(env *Env, name string) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(env.Stdin)
	}
	return os.ReadFile(name)
}

func printVersion(env *Env, output format, v client.PolicyVersion) error {
	if output == "json" {
		return output.print(env, v, nil, nil)
	}
	return writeSafe(env.Stdout, "version %d is in force: %s\n", v.Number, describeVersion(v))
}

func describeVersion(v client.PolicyVersion) string {
	if v.Of != 0 {
		return fmt.Sprintf("%s, as in version %d", v.Name, v.Of)
	}
	return v.Name
}

// ---- rollback

func newPoliciesRollbackCommand(env *Env) *cobra.Command {
	output := format("")
	cmd := &cobra.Command{
		Use:     "rollback",
		Short:   "Apply the previous version of the policies again",
		Long:    "Apply the previous version of the policies again. A second roll-back goes further back; eight\nversions are kept.",
		Example: "  outboard policies rollback",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v, err := env.client().RollbackPolicies(cmd.Context())
			if err != nil {
				return err
			}
			return printVersion(env, output, v)
		},
	}
	output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

// ---- show

type policiesShowOptions struct {
	output  format
	version int
}

func newPoliciesShowCommand(env *Env) *cobra.Command {
	var opts policiesShowOptions
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show the text of the policies in force, or of an earlier version",
		Example: `  outboard policies show
  outboard policies show --version 3
  outboard policies show -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPoliciesShow(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().IntVar(&opts.version, "version", 0, "the `NUMBER` of an earlier version (default the one in force)")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runPoliciesShow(ctx context.Context, env *Env, opts policiesShowOptions) error {
	p, err := env.client().Policies(ctx)
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, p.Versions, nil, nil)
	}
	if len(p.Versions) == 0 && opts.version == 0 {
		fmt.Fprintln(env.Stderr, "no policies are in force; `outboard policies apply FILE` applies some")
		return nil
	}
	i := len(p.Versions) - 1
	if opts.version != 0 {
		i = slices.IndexFunc(p.Versions, func(kept client.PolicyVersion) bool { return kept.Number == opts.version })
	}
	if i < 0 {
		return usage("version %d is not kept; there are %s", opts.version, numbers(p.Versions))
	}
	v := p.Versions[i]
	printSafe(env.Stderr, "# version %d: %s, applied on %s at %s\n", v.Number, describeVersion(v), v.By, v.Applied.Format(time.RFC3339))
	return writeSafe(env.Stdout, "%s\n", strings.TrimRight(v.Text, "\n"))
}

func numbers(versions []client.PolicyVersion) string {
	var all []string
	for _, v := range versions {
		all = append(all, strconv.Itoa(v.Number))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}
