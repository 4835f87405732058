package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/client"
)

type keysOptions struct{ output format }

func newKeysCommand(env *Env) *cobra.Command {
	var opts keysOptions
	cmd := &cobra.Command{
		Use:   "keys",
		Short: "List the API keys of the pool's models, with what was done with them",
		Long: `List the API keys of the pool's models, with what was done with them.

While the pool has no keys, each node serves models to its own machine only. As soon as it has one,
every request names a key, as OpenAI's clients do: in the header "Authorization: Bearer KEY".`,
		Example: `  outboard keys
  outboard keys create website --tokens-per-minute 20000
  outboard keys revoke website`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runKeys(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	complete(cmd, "output", completeFormat)
	cmd.AddCommand(newKeysCreateCommand(env), newKeysRevokeCommand(env))
	return cmd
}

func runKeys(ctx context.Context, env *Env, opts keysOptions) error {
	list, err := env.client().ModelKeys(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, k := range list {
		expires, used := "-", "-"
		if !k.Expires.IsZero() {
			expires = k.Expires.Local().Format(time.DateTime)
		}
		if !k.LastUsed.IsZero() {
			used = k.LastUsed.Local().Format(time.DateTime)
		}
		if k.Admin {
			k.Name += " (admin)"
		}
		rows = append(rows, []string{
			k.Name, k.ID, orDash(strings.Join(k.Models, ",")), keyLimitText(k), expires,
			strconv.FormatInt(k.Requests, 10), strconv.FormatInt(k.Refused, 10), strconv.FormatInt(k.PromptTokens+k.GeneratedTokens, 10), used,
		})
	}
	return opts.output.print(env, list, []string{"NAME", "ID", "MODELS", "LIMITS PER MINUTE", "EXPIRES", "REQUESTS", "REFUSED", "TOKENS", "LAST USED"}, rows)
}

func keyLimitText(k client.ModelKey) string {
	var limits []string
	if k.RequestsPerMinute > 0 {
		limits = append(limits, fmt.Sprintf("%d requests", k.RequestsPerMinute))
	}
	if k.TokensPerMinute > 0 {
		limits = append(limits, fmt.Sprintf("%d tokens", k.TokensPerMinute))
	}
	return orDash(strings.Join(limits, ", "))
}

// ---- create

type keysCreateOptions struct {
	output           format
	models           []string
	requests, tokens int
	ttl              time.Duration
	admin            bool
}

func newKeysCreateCommand(env *Env) *cobra.Command {
	var opts keysCreateOptions
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make an API key and print it; it cannot be shown again",
		Long: `Make an API key and print it; it cannot be shown again.

With the pool's first key, models are served to other machines too, and every request names a key.
Each node applies the limits to the requests that it accepts.`,
		Example: `  outboard keys create website
  outboard keys create guest --models small --requests-per-minute 30 --ttl 24h
  outboard keys create operator --admin`,
		Args: oneArg("name the new key"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runKeysCreate(cmd.Context(), env, opts, args[0])
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	opts.output.addFlag(flags)
	flags.StringSliceVar(&opts.models, "models", nil, "`NAMES` of the models that the key may use (default all)")
	flags.IntVar(&opts.requests, "requests-per-minute", 0, "requests that a node accepts in a minute (default no limit)")
	flags.IntVar(&opts.tokens, "tokens-per-minute", 0, "tokens of prompts and answers in a minute on a node (default no limit)")
	flags.BoolVar(&opts.admin, "admin", false, "let the key load and unload models for all clients")
	flags.DurationVar(&opts.ttl, "ttl", 0, "time until the key expires (default never)")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runKeysCreate(ctx context.Context, env *Env, opts keysCreateOptions, name string) error {
	if opts.requests < 0 || opts.tokens < 0 || opts.ttl < 0 {
		return usage("limits and --ttl must not be negative")
	}
	k, err := env.client().CreateModelKey(ctx, client.ModelKeyRequest{
		Name: name, Life: client.Duration(opts.ttl), Models: opts.models, RequestsPerMinute: opts.requests, TokensPerMinute: opts.tokens, Admin: opts.admin,
	})
	if err != nil {
		return err
	}
	if opts.output == "json" {
		return opts.output.print(env, k, nil, nil)
	}
	fmt.Fprintln(env.Stdout, k.Token)
	return nil
}

// ---- revoke

func newKeysRevokeCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:     "revoke NAME",
		Short:   "Delete an API key by its name or identifier",
		Long:    "Delete an API key by its name or identifier. Requests that name it are refused from now on.",
		Example: "  outboard keys revoke website",
		Args:    oneArg("name one key or its identifier; `outboard keys` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := env.client().RevokeModelKey(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			printSafe(env.Stderr, "revoked %s (%s)\n", k.Name, k.ID)
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			list, err := env.client().ModelKeys(cmd.Context())
			if err != nil || len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, k := range list {
				names = append(names, k.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
}
