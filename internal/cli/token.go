package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

type tokenOptions struct {
	output format
	ttl    time.Duration
}

func (o *tokenOptions) addFlags(flags *pflag.FlagSet) {
	o.output.addFlag(flags)
	flags.DurationVar(&o.ttl, "ttl", time.Hour, "time until the token expires")
}

func newTokenCommand(env *Env) *cobra.Command {
	var opts tokenOptions
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print a token with which one more machine may join the pool",
		Long:  "Print a token with which one more machine may join the pool. It is valid once, and expires.",
		Example: `  outboard token
  outboard token --ttl 10m -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runToken(cmd.Context(), env, opts) },
	}
	opts.addFlags(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runToken(ctx context.Context, env *Env, opts tokenOptions) error {
	if opts.ttl <= 0 {
		return usage("--ttl %v: want a time above zero, such as 10m", opts.ttl)
	}
	token, err := env.client().Token(ctx, opts.ttl)
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, token, nil, nil)
	}
	fmt.Fprintln(env.Stdout, token.Token)
	printSafe(env.Stderr, "on the other machine, within %v: outboard up --join %s --token TOKEN\n", opts.ttl, token.Addr)
	return nil
}
