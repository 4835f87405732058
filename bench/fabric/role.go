package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/outboard-run/outboard/bench/paired"
)

// An actor is a process in its role.
type actor struct {
	spec     spec
	addr     string // where the process listens, if it does
	commands map[string]func(context.Context, json.RawMessage) (any, error)
	close    func() error
	held     *heldStreams // nil: none
}

// roleMain is the main function of a process with a role.
func roleMain(text string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := runRole(ctx, text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench role:", err)
		return 1
	}
	return 0
}

func runRole(ctx context.Context, text string, in io.Reader, out io.Writer) (err error) {
	a := &actor{close: func() error { return nil }}
	if err := json.Unmarshal([]byte(text), &a.spec); err != nil {
		return err
	}
	replies := json.NewEncoder(out)
	if err := a.prepare(ctx); err != nil {
		return errors.Join(replies.Encode(commandReply{Error: err.Error()}), a.close())
	}
	defer func() { err = errors.Join(err, a.close()) }()
	if err := replies.Encode(replyOf(a.addr, nil)); err != nil {
		return err
	}
	stop, err := paired.WriteProfile(a.spec.Profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return a.serveCommands(ctx, json.NewDecoder(in), replies)
}

func (a *actor) prepare(ctx context.Context) error {
	a.commands = map[string]func(context.Context, json.RawMessage) (any, error){
		"usage": func(context.Context, json.RawMessage) (any, error) { return usage() },
	}
	prepare, ok := map[string]func(context.Context) error{
		roleClient: a.client, roleServer: a.server, roleProxy: a.proxy, roleEnvoy: a.envoy, roleManaged: a.managed, roleChain: a.policies,
		roleNode: a.node,
	}[a.spec.Role]
	if !ok {
		return fmt.Errorf("no role %q", a.spec.Role)
	}
	return prepare(ctx)
}

// serveCommands executes the commands of standard input until it is closed.
func (a *actor) serveCommands(ctx context.Context, requests *json.Decoder, replies *json.Encoder) error {
	for {
		var q struct {
			Do   string
			Args json.RawMessage
		}
		if err := requests.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		do := a.commands[q.Do]
		if do == nil {
			return fmt.Errorf("asked to %q", q.Do)
		}
		if err := replies.Encode(replyOf(do(ctx, q.Args))); err != nil {
			return err
		}
	}
}

func replyOf(result any, err error) commandReply {
	if err != nil {
		return commandReply{Error: err.Error()}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return commandReply{Error: err.Error()}
	}
	return commandReply{Result: raw}
}

// decodeArgs converts a function with typed arguments to a command of an actor.
func decodeArgs[A any](do func(context.Context, A) (any, error)) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args A
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, err
		}
		return do(ctx, args)
	}
}
