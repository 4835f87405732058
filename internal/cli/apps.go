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
		Long: `List the apps that are deployed. STATE is how far this node is with the version in force,
NODES on how many of the pool's nodes it is ready. With -o json each node is there with its
state, and the reason where it is not ready:

  ready     it serves the version
  starting  it compiles it
  failed    it could not, and tries again
  silent    it did not answer
  unknown   its program is too old to tell`,
		Example: `  outboard apps
  outboard apps -o json
  outboard apps -o json | jq '.[] | {name, nodes}'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runApps(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runApps(ctx context.Context, env *Env, opts appsOptions) error {
	apps, err := env.client().AppsOnNodes(ctx)
	if err != nil {
		return err
	}
	tellSilent(env, apps)
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

// nodesText is on how many nodes an app is ready, "2/3"; an old node does not know.
func nodesText(nodes []client.AppNode) string {
	if len(nodes) == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", countReady(nodes), len(nodes))
}

// tellSilent names each node once that did not say how far it is.
func tellSilent(env *Env, apps []client.App) {
	told := map[outboard.NodeID]bool{}
	for _, a := range apps {
		for _, n := range a.Nodes {
			if (n.State == client.AppSilent || n.State == client.AppUnknown) && !told[n.Node] {
				told[n.Node] = true
				fmt.Fprintf(env.Stderr, "node %s did not tell how far it is: %s\n", n.Node, strings.Join(strings.Fields(n.Reason), " "))
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
		Short: "List the functions of the apps, and how their calls went",
		Long: `List the functions of the apps, and how their calls went on all nodes since the app's
version was deployed, or the node was started: how many ended, and badly; how many run and
wait; how they came by their instance (a new one, a clone of the function's image, or one
that was reset); how long half of them and 99 in 100 took at most. With -o json each node's
own counts are there, too.`,
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
			fmt.Fprintf(env.Stderr, "the calls of node %s are missing: it did not tell them\n", node)
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

type rollbackOptions struct {
	output format
	ready  readyOptions
}

func newRollbackCommand(env *Env) *cobra.Command {
	var opts rollbackOptions
	cmd := &cobra.Command{
		Use:   "rollback APP",
		Short: "Put the version of an app back in force that was so before",
		Long: `Put the version of an app back in force that was so before. A second roll-back goes
further back; eight versions are kept, fewer when they are large. It waits for the pool's
nodes as ` + "`outboard deploy`" + ` does.`,
		Example:           "  outboard rollback shop\n  outboard rollback shop --no-wait",
		Args:              oneArg("name one app; `outboard apps` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runRollback(cmd.Context(), env, opts, args[0]) },
		ValidArgsFunction: env.firstArg(appWords),
	}
	opts.output.addFlag(cmd.Flags())
	opts.ready.addFlags(cmd)
	complete(cmd, "output", completeFormat)
	return cmd
}

func runRollback(ctx context.Context, env *Env, opts rollbackOptions, app string) error {
	if err := opts.ready.validate(); err != nil {
		return err
	}
	made, err := env.client().RollbackApp(ctx, client.RollbackRequest{App: app, NoWait: true}) // awaitNodes does
	if err != nil {
		return err
	}
	return finishDeployed(ctx, env, opts.output, opts.ready, made)
}

func newRemoveCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "remove APP",
		Short: "End an app in the whole pool",
		Long: `End an app in the whole pool: its routes, subjects and schedules start nothing more. Its
buckets stay, for when it is deployed again.`,
		Example:           "  outboard remove shop",
		Args:              oneArg("name one app; `outboard apps` lists them"),
		RunE:              func(cmd *cobra.Command, args []string) error { return runRemove(cmd.Context(), env, args[0]) },
		ValidArgsFunction: env.firstArg(appWords),
	}
}

func runRemove(ctx context.Context, env *Env, app string) error {
	if app == "" {
		return outboard.Errorf(outboard.Invalid, "", "name an app")
	}
	if err := env.client().RemoveApp(ctx, app); err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "app %s is removed\n", app)
	return nil
}
