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

// readyLimit is how long nodes may take to make a version ready, where nobody says more.
const readyLimit = 2 * time.Minute

// readyOptions say how long a version's nodes are waited for.
type readyOptions struct {
	wait   time.Duration
	noWait bool
}

func (o *readyOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&o.wait, "wait", readyLimit, "how long to wait until all nodes of the pool serve the version")
	cmd.Flags().BoolVar(&o.noWait, "no-wait", false, "wait for no node")
	complete(cmd, "wait", completeWords("30s", "2m", "10m"))
}

func (o *readyOptions) validate() error {
	switch {
	case o.noWait && o.wait != readyLimit:
		return usage("--wait %v and --no-wait: leave one of them out", o.wait)
	case o.wait <= 0:
		return usage("--wait %v: want more than 0; --no-wait waits for no node", o.wait)
	}
	return nil
}

const (
	// askEvery is how often nodes are asked how far they are.
	askEvery = 250 * time.Millisecond
	// askLimit is how long the last answer may take when the time is over: what is said of the
	// nodes then is not older than that.
	askLimit = 5 * time.Second
)

// awaitNodes waits until each node of the pool serves a version that is applied, or can't. What
// it heard last is in made.
func (env *Env) awaitNodes(ctx context.Context, made *client.Deployed, opts readyOptions) error {
	if opts.noWait {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, opts.wait+askLimit)
	defer cancel()
	w := nodeWait{env: env, began: time.Now()}
	over := time.After(opts.wait)
	for {
		nodes, err := env.client().AppNodes(asking, made.App, made.Version)
		switch {
		case asking.Err() != nil:
			return w.gaveUp(ctx, made, opts.wait)
		case outboard.KindOf(err) == outboard.Protocol:
			fmt.Fprintln(env.Stderr, "the node's program is older than this one: it does not tell how far the pool's other nodes are")
			return nil
		case err != nil:
			return outboard.Errorf(outboard.KindOf(err), "", "%s is applied, but it is not known whether it is ready: %w", versionName(made), err)
		}
		made.Nodes = nodes
		if !slices.ContainsFunc(nodes, waitedFor) {
			return w.settled(made)
		}
		w.tell(nodes)
		select {
		case <-ctx.Done():
			return w.gaveUp(ctx, made, opts.wait)
		case <-over:
			return w.gaveUp(ctx, made, opts.wait)
		case <-time.After(askEvery):
		}
	}
}

// waitedFor says that a node may still become ready. One that does not answer is waited for
// until the pool has found that it is gone.
func waitedFor(n client.AppNode) bool {
	return n.State == client.AppStarting || n.State == client.AppSilent
}

// A nodeWait is a wait for nodes.
type nodeWait struct {
	env   *Env
	began time.Time
	told  string
}

// tell tells who sits at a terminal how far it is, once it takes long, whenever that changes.
func (w *nodeWait) tell(nodes []client.AppNode) {
	text := "ready on " + readyCount(nodes) + " nodes, " + stateList(nodes, waitedFor)
	if w.env.Terminal && time.Since(w.began) >= slow && text != w.told {
		fmt.Fprintln(w.env.Stderr, text+" ...")
		w.told = text
	}
}

// settled is how it ended when nobody is waited for any more.
func (w *nodeWait) settled(made *client.Deployed) error {
	for _, n := range made.Nodes {
		if n.State == client.AppUnknown {
			fmt.Fprintf(w.env.Stderr, "node %s was not waited for: %s\n", n.Node, n.Reason)
		}
	}
	failed := func(n client.AppNode) bool { return n.State == client.AppFailed }
	if !slices.ContainsFunc(made.Nodes, failed) {
		return nil
	}
	return fmt.Errorf("%s is applied, but ready on %s nodes only: %s; they try again: see `outboard apps`",
		versionName(made), readyCount(made.Nodes), stateList(made.Nodes, failed))
}

// gaveUp is how it ended when it took too long, or when who waits was interrupted.
func (w *nodeWait) gaveUp(ctx context.Context, made *client.Deployed, after time.Duration) error {
	late := stateList(made.Nodes, func(n client.AppNode) bool { return n.State != client.AppReady })
	if late == "" {
		late = "no node has told how far it is"
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		fmt.Fprintf(w.env.Stderr, "%s is applied; ready on %s nodes, %s\n", versionName(made), readyCount(made.Nodes), late)
		return ctx.Err()
	}
	return outboard.Errorf(outboard.Unreachable, "", "%s is applied, but after %v it is ready on %s nodes only: %s; `outboard apps` shows when all are, and --wait waits for longer",
		versionName(made), after, readyCount(made.Nodes), late)
}

func versionName(made *client.Deployed) string {
	return fmt.Sprintf("app %s, version %d,", made.App, made.Version)
}

// readyCount is "2 of 3".
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

// stateList says of those nodes that are meant how far they are.
func stateList(nodes []client.AppNode, meant func(client.AppNode) bool) string {
	var all []string
	for _, n := range nodes {
		if meant(n) {
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
		return string(n.Node) + " does not tell"
	}
	return strings.TrimSpace(string(n.Node) + " " + stateText(n.State, n.Reason))
}
