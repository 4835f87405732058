package cli

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

type chatOptions struct {
	output      format
	prompt      string
	system      string
	temperature float64
	seed        int64
	maxTokens   int
	stats       bool
}

func (o *chatOptions) addFlags(flags *pflag.FlagSet) {
	o.output.addFlag(flags)
	flags.StringVarP(&o.prompt, "prompt", "p", "", "`TEXT` to answer, instead of a conversation")
	flags.StringVar(&o.system, "system", "", "`TEXT` that tells the model how to answer")
	flags.Float64Var(&o.temperature, "temperature", 0.8, "how varied answers are, 0 for the likeliest one")
	flags.Int64Var(&o.seed, "seed", 0, "number that makes answers repeatable (default another each time)")
	flags.IntVar(&o.maxTokens, "max-tokens", 0, "most tokens of an answer (default as many as the context has)")
	flags.BoolVar(&o.stats, "stats", false, "print counts and speed after each answer")
}

func newChatCommand(env *Env) *cobra.Command {
	var opts chatOptions
	cmd := &cobra.Command{
		Use:   "chat NAME",
		Short: "Talk with a language model of the pool",
		Long: `Talk with a language model of the pool. Answers appear as they are generated.

Each line of standard input is a message; an empty line, the end of the input or an interrupt
ends the conversation.`,
		Example: `  outboard chat small
  outboard chat small -p "Which is the highest mountain?" --temperature 0
  outboard chat small -p "$(cat question.txt)" --max-tokens 200 --stats`,
		Args: oneArg("name one model; `outboard models` lists them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runChat(cmd.Context(), env, opts, cmd.Flags(), args[0])
		},
		ValidArgsFunction: env.firstArg(modelWords),
	}
	opts.addFlags(cmd.Flags())
	complete(cmd, "output", completeFormat)
	return cmd
}

func runChat(ctx context.Context, env *Env, opts chatOptions, flags *pflag.FlagSet, model string) error {
	if opts.temperature < 0 || opts.maxTokens < 0 {
		return usage("--temperature and --max-tokens must not be negative")
	}
	c := &conversation{env: env, opts: opts, request: client.ChatRequest{Model: model, Options: client.ChatOptions{Temperature: &opts.temperature}}}
	if flags.Changed("seed") {
		c.request.Options.Seed = &opts.seed
	}
	if opts.maxTokens > 0 {
		c.request.Options.MaxTokens = &opts.maxTokens
	}
	if opts.system != "" {
		c.add("system", opts.system)
	}
	if flags.Changed("prompt") {
		err := c.sendMessage(ctx, opts.prompt)
		if outboard.KindOf(err) == outboard.NotFound {
			_, reason := env.client().Model(ctx, model) // the protocol's own words do not name other models
			err = cmp.Or(reason, err)
		}
		return err
	}
	if opts.output == "json" {
		return usage("-o json is for one answer: add --prompt")
	}
	if _, err := env.client().Model(ctx, model); err != nil { // before the first message is typed
		return err
	}
	return c.run(ctx)
}

// A conversation holds the messages so far.
type conversation struct {
	env     *Env
	opts    chatOptions
	request client.ChatRequest
}

func (c *conversation) add(role, content string) {
	c.request.Messages = append(c.request.Messages, client.ChatMessage{Role: role, Content: content})
}

// run answers each line of standard input.
func (c *conversation) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	lines := readLines(ctx, c.env.Stdin)
	for {
		c.invite()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case l := <-lines:
			if l.err != nil || strings.TrimSpace(l.text) == "" {
				return l.err
			}
			if err := c.sendMessage(ctx, l.text); err != nil {
				return err
			}
		}
	}
}

// An inputLine is a line of the input, or the error that ended the input.
type inputLine struct {
	text string
	err  error
}

// readLines reads lines until ctx is done; an empty one follows the last. A read of a terminal can't
// be canceled, so another goroutine waits for it: the command need not.
func readLines(ctx context.Context, r io.Reader) <-chan inputLine {
	const maxLine = 1 << 20
	lines := make(chan inputLine)
	go func() {
		scanner := bufio.NewScanner(r)
		scanner.Buffer(nil, maxLine)
		for {
			l := inputLine{}
			more := scanner.Scan()
			if l.text = scanner.Text(); !more {
				l = inputLine{err: scanner.Err()}
			}
			select {
			case lines <- l:
			case <-ctx.Done():
				return
			}
			if !more {
				return
			}
		}
	}()
	return lines
}

// invite shows on a terminal that a message is expected.
func (c *conversation) invite() {
	if c.env.Terminal {
		fmt.Fprint(c.env.Stderr, "> ")
	}
}

// sendMessage adds a message and prints the answer.
func (c *conversation) sendMessage(ctx context.Context, message string) error {
	c.add("user", message)
	var answer strings.Builder
	begin := time.Now()
	usage, err := c.env.client().Chat(ctx, c.request, func(text string) error {
		answer.WriteString(text)
		if c.opts.output == "json" {
			return nil
		}
		_, err := io.WriteString(c.env.Stdout, safeText(text))
		return err
	})
	if err != nil {
		return err
	}
	c.add("assistant", answer.String())
	if c.opts.output == "json" {
		return c.opts.output.print(c.env, map[string]any{
			"model": c.request.Model, "answer": answer.String(), "prompt_tokens": usage.PromptTokens, "generated_tokens": usage.GeneratedTokens, "seconds": time.Since(begin).Seconds(),
		}, nil, nil)
	}
	fmt.Fprintln(c.env.Stdout)
	if c.opts.stats {
		c.printStats(usage, time.Since(begin))
	}
	return nil
}

func (c *conversation) printStats(u client.ChatUsage, took time.Duration) {
	speed := "-"
	if d := time.Duration(u.Decode); d > 0 && u.GeneratedTokens > 1 {
		speed = fmt.Sprintf("%.1f tokens/s", float64(u.GeneratedTokens-1)/d.Seconds())
	}
	printSafe(c.env.Stderr, "%d tokens read in %v, %d written, %s, %v altogether\n", u.PromptTokens, time.Duration(u.Prefill).Round(time.Millisecond), u.GeneratedTokens, speed, took.Round(time.Millisecond))
}

// safeText removes the characters that could control a terminal: a model's text is not trusted.
func safeText(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, text)
}
