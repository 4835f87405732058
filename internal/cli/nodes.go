package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
)

type nodesOptions struct{ output format }

func newNodesCommand(env *Env) *cobra.Command {
	var opts nodesOptions
	cmd := &cobra.Command{
		Use:   "nodes",
		Short: "List the nodes of the pool",
		Long: `List the nodes of the pool.

STATE is "copy" for a node that keeps a copy of the pool's state: the founder alone at first,
three nodes once there are three, none where an external NATS cluster keeps it.`,
		Example: "  outboard nodes\n  outboard nodes -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runNodes(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newNodesRemoveCommand(env))
	return cmd
}

func newNodesRemoveCommand(env *Env) *cobra.Command {
	away := pool.DefaultAway
	cmd := &cobra.Command{
		Use:   "remove NODE",
		Short: "Remove a node from the pool for good: its certificate is revoked",
		Long: `Remove a node from the pool for good.

All nodes refuse its certificate from now on, close its connections, and end its leases. It need
not be running. To use the machine again, empty its data directory and join it with a new token.
What it could read before (the pool's state) it may have kept: see docs/security.md. Nodes that it
has admitted remain in the pool, and are listed ("admitted_by" of ` + "`outboard nodes -o json`" + ` names
the nodes that have admitted each).

Where the node kept a copy of the pool's state it could read the key of the pool's authority: that
is renewed. Nodes that are up get new certificates by themselves; nodes that are away when it
happens come back with the certificates that they have until --away has passed, and need a new
token afterwards. Tokens that were not used yet are void.`,
		Example: "  outboard nodes remove dinghy\n  outboard nodes remove harbour --away 720h",
		Args:    oneArg("name one node; `outboard nodes` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runNodesRemove(cmd.Context(), env, outboard.NodeID(args[0]), away)
		},
		ValidArgsFunction: env.firstArg(nodeWords),
	}
	cmd.Flags().DurationVar(&away, "away", away, "how long nodes that are away now may come back without a token")
	return cmd
}

func runNodesRemove(ctx context.Context, env *Env, name outboard.NodeID, away time.Duration) error {
	removed, err := env.client().RemoveNode(ctx, name, away)
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "node %s was removed\n", name)
	if len(removed.Admitted) > 0 {
		printSafe(env.Stderr, "It had admitted these nodes, which remain in the pool: %s. Remove those that are not yours.\n", joinNodes(removed.Admitted))
	}
	return nil
}

func joinNodes(nodes []outboard.NodeID) string {
	var names []string
	for _, n := range nodes {
		names = append(names, string(n))
	}
	return strings.Join(names, ", ")
}

// nodeWords returns the names of the pool's nodes.
func nodeWords(ctx context.Context, c *client.Client) ([]string, error) {
	nodes, err := c.Nodes(ctx)
	var words []string
	for _, n := range nodes {
		words = append(words, string(n.ID)+"\t"+n.Addr)
	}
	return words, err
}

func runNodes(ctx context.Context, env *Env, opts nodesOptions) error {
	nodes, err := env.client().Nodes(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, n := range nodes {
		rows = append(rows, nodeRow(n, time.Now()))
	}
	warnIncomplete(ctx, env)
	return opts.output.print(env, nodes, []string{"NODE", "ADDRESS", "DEVICES", "STATE", "VERSION", "UP"}, rows)
}

// statePart is the part of a node that reports whether the pool's state accepts writes.
const statePart = "state"

// warnIncomplete says on standard error that a list of the pool may lack entries: those of nodes
// expire while the pool's state accepts no writes.
func warnIncomplete(ctx context.Context, env *Env) {
	status, err := env.client().Status(ctx)
	if err != nil {
		return // The list is there all the same.
	}
	for _, p := range status.Problems {
		if p.Part == statePart {
			fmt.Fprintf(env.Stderr, "outboard: the list may be incomplete: %s; see `outboard status`\n", clean(oneLine(p.Text)))
		}
	}
}

func nodeRow(n outboard.Node, now time.Time) []string {
	state := "-"
	if n.Copy {
		state = "copy"
	}
	return []string{string(n.ID), n.Addr, strconv.Itoa(len(n.Devices)), state, n.Version, age(now, n.Started)}
}
