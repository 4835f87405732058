package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
)

type sessionsOptions struct{ output format }

func newSessionsCommand(env *Env) *cobra.Command {
	var opts sessionsOptions
	cmd := &cobra.Command{
		Use:   "sessions",
		Short: "List the sessions on this node's devices",
		Example: `  outboard sessions
  outboard sessions -o json
  outboard sessions kill 3f9c`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runSessions(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newSessionsKillCommand(env))
	return cmd
}

func runSessions(ctx context.Context, env *Env, opts sessionsOptions) error {
	sessions, err := env.client().Sessions(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, s := range sessions {
		rows = append(rows, []string{
			string(s.ID), string(s.Device), string(s.Holder), s.Via, strconv.Itoa(s.Worker),
			age(time.Now(), s.Started), orDash(s.Program),
		})
	}
	return opts.output.print(env, sessions, []string{"SESSION", "DEVICE", "HOLDER", "VIA", "WORKER", "AGE", "PROGRAM"}, rows)
}

func newSessionsKillCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "kill SESSION",
		Short:   "End a session; its program gets an error",
		Example: "  outboard sessions kill 3f9c",
		Args:    oneArg("name one session; `outboard sessions` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runSessionsKill(cmd.Context(), env, outboard.SessionID(args[0]))
		},
		ValidArgsFunction: env.completeSession,
	}
}

func runSessionsKill(ctx context.Context, env *Env, id outboard.SessionID) error {
	if err := env.client().KillSession(ctx, id); err != nil {
		return err
	}
	fmt.Fprintf(env.Stderr, "session %s ended\n", id)
	return nil
}
