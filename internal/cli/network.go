package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

type networkOptions struct {
	output  format
	refresh refresh
}

func newNetworkCommand(env *Env) *cobra.Command {
	var opts networkOptions
	cmd := &cobra.Command{
		Use:   "network",
		Short: "Show the measured network between nodes",
		Long: `Show the measured network between nodes: round-trip time, bandwidth each way and loss.

Every node measures the way to a few others, within the budget of ` + "`outboard up --probe-budget`" + `:
those with which it shares leases first, then nodes with devices. QUEUE is how much longer a
round trip takes now than at best: how loaded the way is. Bandwidths are those of short bursts,
and so lower bounds; the value after ± is the distance of the quartiles.`,
		Example: `  outboard network
  outboard network --watch
  outboard network -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.refresh.run(cmd.Context(), func() error { return showNetwork(cmd.Context(), env, opts) })
		},
	}
	opts.output.addFlag(cmd.Flags())
	opts.refresh.addFlags(cmd)
	cmd.Flags().BoolVar(&opts.refresh.follow, "watch", false, "the same as --follow")
	complete(cmd, "output", completeFormat)
	return cmd
}

func showNetwork(ctx context.Context, env *Env, opts networkOptions) error {
	links, err := env.client().Network(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, l := range links {
		rows = append(rows, []string{
			string(l.From), string(l.To), duration(int64(l.RTT)) + " ± " + duration(int64(l.RTTSpread)), duration(int64(l.Queueing())),
			bandwidth(l.Forward, l.ForwardSpread), bandwidth(l.Backward, l.BackwardSpread),
			strconv.FormatFloat(100*l.Loss, 'f', 1, 64) + "%", strconv.Itoa(l.Samples), age(time.Now(), l.Measured),
		})
	}
	opts.refresh.clearPage(env, opts.output)
	if len(rows) == 0 && opts.output == "text" {
		fmt.Fprintln(env.Stderr, "outboard: nothing is measured yet: the pool has one node, its nodes have just started, or they run with --probe-budget 0")
	}
	return opts.output.print(env, links, []string{"FROM", "TO", "RTT", "QUEUE", "FORWARD", "BACKWARD", "LOSS", "PROBES", "AGE"}, rows)
}

// bandwidth formats a rate with its spread, both in bytes/s, in bits/s as is usual for networks.
func bandwidth(rate, spread float64) string {
	if rate == 0 {
		return "-"
	}
	return bits(rate) + " ± " + bits(spread)
}

// bits formats a rate in bytes/s in bits/s.
func bits(rate float64) string {
	v, unit := rate*8, ""
	for _, next := range []string{"k", "M", "G", "T"} {
		if v < 1000 {
			break
		}
		v, unit = v/1000, next
	}
	return strconv.FormatFloat(v, 'g', 3, 64) + unit + "bit/s"
}

// linkTo returns the link to a node, nil if there is none.
func linkTo(links []client.Link, node outboard.NodeID) *client.Link {
	i := slices.IndexFunc(links, func(l client.Link) bool { return l.To == node })
	if i < 0 {
		return nil
	}
	return &links[i]
}

// roundTrip and bandwidths return columns about the link to a device's node.
func roundTrip(links []client.Link, node outboard.NodeID) string {
	if l := linkTo(links, node); l != nil {
		return duration(int64(l.RTT))
	}
	return "-"
}

func bandwidths(links []client.Link, node outboard.NodeID) string {
	l := linkTo(links, node)
	if l == nil || l.Forward == 0 && l.Backward == 0 {
		return "-"
	}
	return strings.TrimSuffix(bits(l.Forward), "bit/s") + "/" + strings.TrimSuffix(bits(l.Backward), "bit/s") + "bit/s"
}
