package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// roleVariable holds the spec of a process that another process started.
const roleVariable = "OUTBOARD_BENCH_ROLE"

// A process is a child process that plays a role. One goroutine uses it at a time.
type process struct {
	spec     spec
	addr     string // the address where it listens, as a target
	input    io.WriteCloser
	requests *json.Encoder
	replies  *json.Decoder
	wait     func() error
}

// A launch starts a process in the role that text describes. The process ends when its input ends.
type launch func(ctx context.Context, text string) (in io.WriteCloser, out io.Reader, wait func() error, err error)

type (
	commandRequest struct {
		Do   string
		Args any
	}
	commandReply struct {
		Result json.RawMessage
		Error  string
	}
)

// stopWait bounds the time that a process takes to end after the end of its input.
const stopWait = 10 * time.Second

// start starts a process with the spec s and waits until it is ready.
func (b *bench) start(ctx context.Context, s spec) (*process, error) {
	s.Profile = b.Profile(s.Name)
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{spec: s}
	var out io.Reader
	if p.input, out, p.wait, err = b.launch(ctx, string(text)); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, err)
	}
	p.requests, p.replies = json.NewEncoder(p.input), json.NewDecoder(out)
	if err := p.receiveReply(&p.addr); err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Name, errors.Join(err, p.stop()))
	}
	return p, nil
}

// launchProcess starts this program anew.
func launchProcess(ctx context.Context, text string) (io.WriteCloser, io.Reader, func() error, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), roleVariable+"="+text)
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = stopWait
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, nil, err
	}
	return in, out, cmd.Wait, cmd.Start()
}

// do sends the process a command and waits for its result.
func (p *process) do(what string, args, result any) error {
	err := p.requests.Encode(commandRequest{what, args})
	if err == nil {
		err = p.receiveReply(result)
	}
	if err != nil {
		return fmt.Errorf("%s: %s: %w", p.spec.Name, what, err)
	}
	return nil
}

func (p *process) receiveReply(result any) error {
	var a commandReply
	if err := p.replies.Decode(&a); err != nil {
		return err
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return json.Unmarshal(a.Result, result)
}

// usage returns the resources that the process has used.
func (p *process) usage() (resources, error) {
	var u resources
	err := p.do("usage", nil, &u)
	return u, err
}

func (p *process) stop() error {
	_ = p.input.Close() // the end of its input ends the process
	if err := p.wait(); err != nil {
		return fmt.Errorf("%s: %w", p.spec.Name, err)
	}
	return nil
}

// A processGroup has the processes of a section.
type processGroup struct {
	bench     *bench
	processes []*process
}

// add starts a process that lives until the group is closed.
func (f *processGroup) add(ctx context.Context, s spec) (*process, error) {
	p, err := f.bench.start(ctx, s)
	if err == nil {
		f.processes = append(f.processes, p)
	}
	return p, err
}

// close ends the processes, callers before the processes that serve them.
func (f *processGroup) close() error {
	var errs []error
	for _, p := range slices.Backward(f.processes) {
		errs = append(errs, p.stop())
	}
	return errors.Join(errs...)
}

// withProcesses runs measure with a group.
func (b *bench) withProcesses(measure func(*processGroup) error) error {
	f := &processGroup{bench: b}
	err := measure(f)
	return errors.Join(err, f.close())
}

// socket returns the target of a unix socket.
func (b *bench) socket(name string) string { return "unix:" + filepath.Join(b.Dir, name) }
