package cli

import (
	"context"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type upgradeOptions struct {
	output format
	binary string
}

func newUpgradeCommand(env *Env) *cobra.Command {
	var opts upgradeOptions
	cmd := &cobra.Command{
		Use:   "upgrade",
		Short: "Hand this node's calls over to a new binary, without losing one",
		Long: `Hand this node's calls over to a new binary, without losing one.

A process of the new binary accepts the connections of programs and of other nodes from now on.
Calls in flight end in the old process; long-lived streams and the counters of policies move to
the new one. The old process ends when its calls have ended; only streams of plain gRPC, which
cannot move, keep it longer. The command waits until the new process has taken over. When the
new binary does not start, the old process stays in charge.

The rest of the node is not replaced: accelerators and the pool's state stay with the binary
with which the node was started.`,
		Example: `  outboard upgrade
  outboard upgrade --binary ./outboard-1.4
  outboard upgrade -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUpgrade(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&opts.binary, "binary", "", "`PATH` of the program (default the node's own, as it is on disk now)")
	complete(cmd, "output", completeFormat)
	_ = cmd.MarkFlagFilename("binary") // the flag exists
	return cmd
}

func runUpgrade(ctx context.Context, env *Env, opts upgradeOptions) error {
	var request client.UpgradeRequest
	if opts.binary != "" {
		path, err := filepath.Abs(opts.binary)
		if err != nil {
			return err
		}
		request.Binary = path
	}
	u, err := env.client().Upgrade(ctx, request)
	if err != nil {
		return err
	}
	if opts.output != "json" {
		printSafe(env.Stderr, "node %s: process %d (%s) has taken over from process %d (%s), which ends when its calls (%d) and streams (%d) have\n",
			u.Node, u.To.Number, u.To.Version, u.From.Number, u.From.Version, u.Calls, u.Streams)
	}
	row := []string{
		string(u.Node), u.From.Version, u.To.Version, strconv.Itoa(u.From.PID), strconv.Itoa(u.To.PID),
		milliseconds(u.Took), milliseconds(u.Pause), strconv.Itoa(u.Calls), strconv.Itoa(u.Streams),
	}
	titles := []string{"NODE", "FROM", "TO", "OLD PID", "NEW PID", "TOOK", "PAUSE", "CALLS", "STREAMS"}
	return opts.output.print(env, u, titles, [][]string{row})
}

func milliseconds(d client.Duration) string {
	return time.Duration(d).Round(100 * time.Microsecond).String()
}
