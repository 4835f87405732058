package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// This file holds the arguments that several commands share: names, bodies, and their completion.

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage("%q: %s takes no arguments; %ssee `%s --help`", args[0], cmd.Name(), suggestion(cmd, args[0]), cmd.CommandPath())
	}
	return nil
}

// oneArg requires one argument, which hint describes.
func oneArg(hint string) cobra.PositionalArgs { return countedArgs(1, 1, hint) }

// atMostOne accepts one argument or none.
func atMostOne(hint string) cobra.PositionalArgs { return countedArgs(0, 1, hint) }

// countedArgs requires from least to most arguments, which hint describes.
func countedArgs(least, most int, hint string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage("%s; %ssee `%s --help`", hint, suggestion(cmd, first(args)), cmd.CommandPath())
		}
		return nil
	}
}

// suggestion names the command below cmd that is closest to a misspelt one, "" if none is close.
func suggestion(cmd *cobra.Command, typed string) string {
	cmd.SuggestionsMinimumDistance = 2
	if near := cmd.SuggestionsFor(typed); typed != "" && len(near) > 0 {
		return fmt.Sprintf("did you mean %q? ", near[0])
	}
	return ""
}

// first returns the first argument, "" if there is none.
func first(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// partOf splits APP/NAME. kind is the placeholder of NAME in an error, such as "FUNCTION".
func partOf(arg, kind string) (app, name string, err error) {
	app, name, ok := strings.Cut(arg, "/")
	if !ok || app == "" || name == "" || strings.Contains(name, "/") {
		return "", "", usage("%q: want APP/%s", arg, kind)
	}
	return app, name, nil
}

// dataUsage explains -d.
const dataUsage = "`DATA`: a text, @FILE for what is in a file, @- for standard input"

// readData returns the content that the value of -d denotes.
func readData(env *Env, data string) ([]byte, error) {
	name, file := strings.CutPrefix(data, "@")
	if !file {
		return []byte(data), nil
	}
	content, err := readFile(env, name)
	if err != nil {
		return nil, outboard.Errorf(outboard.NotFound, "-d", "%w", err)
	}
	return content, nil
}

func readerOf(content []byte) io.Reader {
	if content == nil {
		return nil
	}
	return bytes.NewReader(content)
}

// fileExists reports whether name is a regular file, so that an error can suggest the missing @.
func fileExists(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// firstArg completes the first argument with words that the node knows.
func (env *Env) firstArg(words func(ctx context.Context, c *client.Client) ([]string, error)) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		all, err := words(ctx, env.client())
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp // completion can't show errors
		}
		return matching(all, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func appWords(ctx context.Context, c *client.Client) ([]string, error) {
	apps, err := c.Apps(ctx)
	var words []string
	for _, a := range apps {
		words = append(words, a.Name)
	}
	return words, err
}

func functionWords(ctx context.Context, c *client.Client) ([]string, error) {
	apps, err := c.Apps(ctx)
	var words []string
	for _, a := range apps {
		for _, f := range a.Functions {
			words = append(words, a.Name+"/"+f)
		}
	}
	return words, err
}

func workflowWords(ctx context.Context, c *client.Client) ([]string, error) {
	apps, err := c.Apps(ctx)
	var words []string
	for _, a := range apps {
		for _, w := range a.Workflows {
			words = append(words, a.Name+"/"+w)
		}
	}
	return words, err
}

// joinWords joins the words of two sources.
func joinWords(a, b func(context.Context, *client.Client) ([]string, error)) func(context.Context, *client.Client) ([]string, error) {
	return func(ctx context.Context, c *client.Client) ([]string, error) {
		words, err := a(ctx, c)
		if err != nil {
			return nil, err
		}
		more, err := b(ctx, c)
		return append(words, more...), err
	}
}

// completedExecutions bounds the executions that completion offers.
const completedExecutions = 50

func executionWords(ctx context.Context, c *client.Client) ([]string, error) {
	executions, err := c.Executions(ctx, client.ExecutionsRequest{Limit: completedExecutions})
	var words []string
	for _, e := range executions {
		words = append(words, e.ID+"\t"+e.Workflow+", "+e.State)
	}
	return words, err
}

func moduleWords(ctx context.Context, c *client.Client) ([]string, error) {
	artifacts, err := c.Artifacts(ctx, "")
	var words []string
	for _, a := range artifacts {
		words = append(words, a.Name)
	}
	return words, err
}

// completeFiles completes the first argument with files of some endings.
func completeFiles(endings ...string) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return endings, cobra.ShellCompDirectiveFilterFileExt
	}
}
