package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// An actor is a process in its role.
type actor struct {
	spec  spec
	addr  string // of those that listen
	does  map[string]func(context.Context, json.RawMessage) (any, error)
	close func() error
}

// play is the main function of a process with a role.
func play(text string) int {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if err := perform(ctx, text, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench role:", err)
		return 1
	}
	return 0
}

func perform(ctx context.Context, text string, in io.Reader, out io.Writer) (err error) {
	a := &actor{close: func() error { return nil }}
	if err := json.Unmarshal([]byte(text), &a.spec); err != nil {
		return err
	}
	tell := json.NewEncoder(out)
	if err := a.prepare(ctx); err != nil {
		return errors.Join(tell.Encode(answer{Error: err.Error()}), a.close())
	}
	defer func() { err = errors.Join(err, a.close()) }()
	if err := tell.Encode(answered(a.addr, nil)); err != nil {
		return err
	}
	stop, err := paired.WriteProfile(a.spec.Profile)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return a.obey(ctx, json.NewDecoder(in), tell)
}

func (a *actor) prepare(ctx context.Context) error {
	a.does = map[string]func(context.Context, json.RawMessage) (any, error){
		"usage": func(context.Context, json.RawMessage) (any, error) { return usage() },
	}
	prepare, ok := map[string]func(context.Context) error{
		roleClient: a.client, roleServer: a.server, roleProxy: a.proxy, roleEnvoy: a.envoy, roleManaged: a.managed, roleChain: a.judge,
		roleStation: a.station,
	}[a.spec.Role]
	if !ok {
		return fmt.Errorf("no role %q", a.spec.Role)
	}
	return prepare(ctx)
}

// obey executes the commands of standard input until it is closed.
func (a *actor) obey(ctx context.Context, ask *json.Decoder, tell *json.Encoder) error {
	for {
		var q struct {
			Do   string
			Args json.RawMessage
		}
		if err := ask.Decode(&q); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		do := a.does[q.Do]
		if do == nil {
			return fmt.Errorf("asked to %q", q.Do)
		}
		if err := tell.Encode(answered(do(ctx, q.Args))); err != nil {
			return err
		}
	}
}

func answered(result any, err error) answer {
	if err != nil {
		return answer{Error: err.Error()}
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return answer{Error: err.Error()}
	}
	return answer{Result: raw}
}

// on makes what an actor does of a function with typed arguments.
func on[A any](do func(context.Context, A) (any, error)) func(context.Context, json.RawMessage) (any, error) {
	return func(ctx context.Context, raw json.RawMessage) (any, error) {
		var args A
		if err := json.Unmarshal(raw, &args); err != nil {
			return nil, err
		}
		return do(ctx, args)
	}
}

// A used is what processes have used.
type used struct {
	CPU float64 // seconds of processor time
	// Switches are the times that a thread went to sleep.
	Switches float64
}

func (u used) plus(v used) used  { return used{u.CPU + v.CPU, u.Switches + v.Switches} }
func (u used) minus(v used) used { return used{u.CPU - v.CPU, u.Switches - v.Switches} }

// usage is what this process has used.
func usage() (used, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return used{}, err
	}
	return used{time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds(), float64(u.Nvcsw)}, nil
}
