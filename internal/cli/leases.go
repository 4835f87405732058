package cli

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

type leasesOptions struct{ output format }

func newLeasesCommand(env *Env) *cobra.Command {
	var opts leasesOptions
	cmd := &cobra.Command{
		Use:     "leases",
		Short:   "List the leases in force, with holders and expiry",
		Example: "  outboard leases\n  outboard leases -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runLeases(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runLeases(ctx context.Context, env *Env, opts leasesOptions) error {
	leases, err := env.client().Leases(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, l := range leases {
		share := "shared"
		if l.Exclusive {
			share = "exclusive"
		}
		rows = append(rows, []string{
			string(l.Lease), string(l.Device), string(l.Holder), l.Memory.String(), share, strconv.Itoa(l.Weight),
			time.Until(l.Expires).Round(time.Second).String(), orDash(l.Program),
		})
	}
	titles := []string{"LEASE", "DEVICE", "HOLDER", "MEMORY", "SHARE", "WEIGHT", "EXPIRES IN", "PROGRAM"}
	warnIncomplete(ctx, env)
	return opts.output.print(env, leases, titles, rows)
}
