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
)

type appsOptions struct{ output format }

func newAppsCommand(env *Env) *cobra.Command {
	var opts appsOptions
	cmd := &cobra.Command{
		Use:   "apps",
		Short: "List the apps that are deployed",
		Long: `List the apps that are deployed. STATE is the state of the deployed version on this node,
NODES the number of the pool's nodes that serve it. With -o json each node is listed with its
state, and the reason where it is not ready:

  ready     the node serves the version
  starting  the node compiles it
  failed    the node could not start it, and tries again
  silent    the node did not answer
  unknown   the node's program is too old to report its state`,
		Example: `  outboard apps
  outboard apps -o json | jq '.[] | {name, nodes}'
  outboard apps rollback shop
  outboard apps remove shop`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runApps(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newAppsRollbackCommand(env), newAppsRemoveCommand(env))
	return cmd
}

func runApps(ctx context.Context, env *Env, opts appsOptions) error {
	apps, err := env.client().AppsOnNodes(ctx)
	if err != nil {
		return err
	}
	warnSilentNodes(env, apps)
	var rows [][]string
	for _, a := range apps {
		rows = append(rows, []string{
			a.Name, a.Tenant, versionText(a), stateText(a.State, a.Reason), nodesText(a.Nodes), strconv.Itoa(len(a.Functions)), strconv.Itoa(len(a.Workflows)),
			strconv.Itoa(len(a.Routes)), a.Applied.Local().Format(time.DateTime), string(a.By),
		})
	}
	titles := []string{"APP", "TENANT", "VERSION", "STATE", "NODES", "FUNCTIONS", "WORKFLOWS", "ROUTES", "DEPLOYED", "BY"}
	return opts.output.print(env, apps, titles, rows)
}

// nodesText returns the number of nodes on which an app is ready, "2/3"; "-" if the node is too old
// to report it.
func nodesText(nodes []client.AppNode) string {
	if len(nodes) == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", countReady(nodes), len(nodes))
}

// warnSilentNodes names each node once that did not report its state.
func warnSilentNodes(env *Env, apps []client.App) {
	warned := map[outboard.NodeID]bool{}
	for _, a := range apps {
		for _, n := range a.Nodes {
			if (n.State == client.AppSilent || n.State == client.AppUnknown) && !warned[n.Node] {
				warned[n.Node] = true
				printSafe(env.Stderr, "node %s did not report its state: %s\n", n.Node, silenceReason(n))
			}
		}
	}
}

func versionText(a client.App) string {
	if a.Of != 0 {
		return fmt.Sprintf("%d (as %d)", a.Version, a.Of)
	}
	return strconv.Itoa(a.Version)
}

func stateText(state, reason string) string {
	if reason == "" {
		return state
	}
	return state + ": " + strings.Join(strings.Fields(reason), " ")
}

// ---- functions

type functionsOptions struct{ output format }

func newFunctionsCommand(env *Env) *cobra.Command {
	var opts functionsOptions
	cmd := &cobra.Command{
		Use:   "functions [APP]",
		Short: "List the functions of the apps, with counts and latencies of their calls",
		Long: `List the functions of the apps, with their calls on all nodes since the app's version was
deployed or the node was started: calls that ended, calls that failed, calls that run and
wait, how each got its instance (a new one, a clone of the function's snapshot, or one that
was reset), and the latency that half of them and 99 in 100 did not exceed. With -o json each
node's own counts are listed too.`,
		Example: `  outboard functions
  outboard functions shop
  outboard functions -o json`,
		Args: atMostOne("name one app"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runFunctions(cmd.Context(), env, opts, first(args))
		},
		ValidArgsFunction: env.firstArg(appWords),
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runFunctions(ctx context.Context, env *Env, opts functionsOptions, app string) error {
	functions, err := env.client().Functions(ctx, app)
	if err != nil {
		return err
	}
	if len(functions) > 0 {
		for _, node := range functions[0].Missing {
			printSafe(env.Stderr, "the calls of node %s are missing: it did not report them\n", node)
		}
	}
	var rows [][]string
	for _, f := range functions {
		rows = append(rows, []string{
			f.App + "/" + f.Name, number(f.Calls), number(f.Errors), fmt.Sprintf("%d+%d", f.Running, f.Waiting),
			fmt.Sprintf("%d/%d/%d", f.Cold, f.Cloned, f.Reset), short(f.P50), short(f.P99), f.Limits.Memory.String(), limitText(f.Limits),
			orDash(strings.Join(f.Imports, " ")),
		})
	}
	titles := []string{"FUNCTION", "CALLS", "ERRORS", "RUN+WAIT", "COLD/CLONE/RESET", "P50", "P99", "MEMORY", "DEADLINE", "IMPORTS"}
	return opts.output.print(env, functions, titles, rows)
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

func limitText(l client.FunctionLimits) string {
	if l.Deadline == 0 {
		return "-"
	}
	return time.Duration(l.Deadline).String()
}

// ---- rollback, remove

type appsRollbackOptions struct {
	output format
	ready  readyOptions
}

func newAppsRollbackCommand(env *Env) *cobra.Command {
	var opts appsRollbackOptions
	cmd := &cobra.Command{
		Use:   "rollback APP",
		Short: "Deploy the previous version of an app again",
		Long: `Deploy the previous version of an app again. A second roll-back goes further back; eight
versions are kept, fewer when they are large. It waits for the pool's nodes as
` + "`outboard deploy`" + ` does.`,
		Example: "  outboard apps rollback shop\n  outboard apps rollback shop --no-wait",
		Args:    oneArg("name one app; `outboard apps` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runAppsRollback(cmd.Context(), env, opts, args[0])
		},
		ValidArgsFunction: env.firstArg(appWords),
	}
	opts.output.addFlag(cmd.Flags())
	opts.ready.addFlags(cmd)
	complete(cmd, "output", completeFormat)
	return cmd
}

func runAppsRollback(ctx context.Context, env *Env, opts appsRollbackOptions, app string) error {
	if err := opts.ready.validate(); err != nil {
		return err
	}
	made, err := env.client().RollbackApp(ctx, client.RollbackRequest{App: app, NoWait: true}) // awaitNodes waits
	if err != nil {
		return err
	}
	return finishDeployed(ctx, env, opts.output, opts.ready, made)
}

func newAppsRemoveCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "remove APP",
		Short: "Remove an app from the whole pool",
		Long: `Remove an app from the whole pool: its routes, subjects and schedules start nothing more.
Its buckets stay, for when it is deployed again.`,
		Example:           "  outboard apps remove shop",
		Args:              oneArg("name one app; `outboard apps` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runAppsRemove(cmd.Context(), env, args[0]) },
		ValidArgsFunction: env.firstArg(appWords),
	}
}

func runAppsRemove(ctx context.Context, env *Env, app string) error {
	if app == "" {
		return outboard.Errorf(outboard.Invalid, "", "name an app")
	}
	if err := env.client().RemoveApp(ctx, app); err != nil {
		return err
	}
	printSafe(env.Stderr, "app %s was removed\n", app)
	return nil
}
