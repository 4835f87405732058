package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// defaultReadyWait is the default of --wait.
const defaultReadyWait = 2 * time.Minute

// readyOptions bound the wait until nodes serve a version.
type readyOptions struct {
	wait   time.Duration
	noWait bool
}

func (o *readyOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.wait, "wait", defaultReadyWait, "how long to wait until all nodes of the pool serve the version")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "do not wait for nodes")
	complete(cmd, "wait", completeWords("30s", "2m", "10m"))
}

func (o *readyOptions) validate() error {
	switch {
	case o.noWait && o.wait != defaultReadyWait:
		return usage("--wait %v and --no-wait: leave one of them out", o.wait)
	case o.wait <= 0:
		return usage("--wait %v: want more than 0; --no-wait does not wait", o.wait)
	}
	return nil
}

const (
	// readyPoll is the interval between requests for the nodes' states.
	readyPoll = 250 * time.Millisecond
	// readyGrace is the time for the last answer after --wait is over, so that the reported states
	// are no older than that.
	readyGrace = 5 * time.Second
)

// awaitNodes waits until each node of the pool serves an applied version, or has failed to. It
// stores the latest states of the nodes in made.
func (env *Env) awaitNodes(ctx context.Context, made *client.Deployed, opts readyOptions) error {
	if opts.noWait {
		return nil
	}
	pollCtx, cancel := context.WithTimeout(ctx, opts.wait+readyGrace)
	defer cancel()
	w := nodeWait{env: env, began: time.Now()}
	over := time.After(opts.wait)
	for {
		nodes, err := env.client().AppNodes(pollCtx, made.App, made.Version)
		switch {
		case pollCtx.Err() != nil:
			return w.timeOut(ctx, made, opts.wait)
		case outboard.KindOf(err) == outboard.Protocol:
			fmt.Fprintln(env.Stderr, "the node's program is older than this one: it does not report the states of the pool's other nodes")
			return nil
		case err != nil:
			return outboard.Errorf(outboard.KindOf(err), "", "%s is applied, but the states of the nodes are unknown: %w", versionName(made), err)
		}
		made.Nodes = nodes
		if !slices.ContainsFunc(nodes, pending) {
			return w.finish(made)
		}
		w.showProgress(nodes)
		select {
		case <-ctx.Done():
			return w.timeOut(ctx, made, opts.wait)
		case <-over:
			return w.timeOut(ctx, made, opts.wait)
		case <-time.After(readyPoll):
		}
	}
}

// pending reports whether a node may still become ready. A node that does not answer is pending
// until the pool declares it dead.
func pending(n client.AppNode) bool {
	return n.State == client.AppStarting || n.State == client.AppSilent
}

// A nodeWait is a wait for nodes.
type nodeWait struct {
	env   *Env
	began time.Time
	shown string // the latest progress
}

// showProgress prints the nodes' states on a terminal whenever they change, once the wait is long.
func (w *nodeWait) showProgress(nodes []client.AppNode) {
	text := "ready on " + readyCount(nodes) + " nodes, " + stateList(nodes, pending)
	if w.env.Terminal && time.Since(w.began) >= silenceLimit && text != w.shown {
		printSafe(w.env.Stderr, "%s\n", text+" ...")
		w.shown = text
	}
}

// finish returns the result of a wait once no node is pending.
func (w *nodeWait) finish(made *client.Deployed) error {
	for _, n := range made.Nodes {
		if n.State == client.AppUnknown {
			printSafe(w.env.Stderr, "did not wait for node %s: %s\n", n.Node, n.Reason)
		}
	}
	failed := func(n client.AppNode) bool { return n.State == client.AppFailed }
	if !slices.ContainsFunc(made.Nodes, failed) {
		return nil
	}
	return fmt.Errorf("%s is applied, but ready on %s nodes only: %s; they try again: see `outboard apps`",
		versionName(made), readyCount(made.Nodes), stateList(made.Nodes, failed))
}

// timeOut returns the result of a wait that took too long or was interrupted.
func (w *nodeWait) timeOut(ctx context.Context, made *client.Deployed, after time.Duration) error {
	late := stateList(made.Nodes, func(n client.AppNode) bool { return n.State != client.AppReady })
	if late == "" {
		late = "no node has reported its state"
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		printSafe(w.env.Stderr, "%s is applied; ready on %s nodes, %s\n", versionName(made), readyCount(made.Nodes), late)
		return ctx.Err()
	}
	return outboard.Errorf(outboard.Unreachable, "", "%s is applied, but after %v it is ready on %s nodes only: %s; `outboard apps` shows when all are, and --wait waits longer",
		versionName(made), after, readyCount(made.Nodes), late)
}

func versionName(made *client.Deployed) string {
	return fmt.Sprintf("app %s, version %d,", made.App, made.Version)
}

// readyCount returns the count of ready nodes as "2 of 3".
func readyCount(nodes []client.AppNode) string {
	return fmt.Sprintf("%d of %d", countReady(nodes), len(nodes))
}

func countReady(nodes []client.AppNode) (n int) {
	for _, node := range nodes {
		if node.State == client.AppReady {
			n++
		}
	}
	return n
}

// stateList describes the states of the selected nodes.
func stateList(nodes []client.AppNode, selected func(client.AppNode) bool) string {
	var all []string
	for _, n := range nodes {
		if selected(n) {
			all = append(all, nodeText(n))
		}
	}
	return strings.Join(all, "; ")
}

func nodeText(n client.AppNode) string {
	switch n.State {
	case client.AppStarting:
		return string(n.Node) + " compiles"
	case client.AppSilent:
		return string(n.Node) + " does not answer"
	case client.AppUnknown:
		return string(n.Node) + " does not report its state"
	}
	return strings.TrimSpace(string(n.Node) + " " + stateText(n.State, n.Reason))
}
