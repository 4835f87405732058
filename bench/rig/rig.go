// Package rig starts a small pool of real `outboard` processes on this machine, and removes all of
// it afterwards.
//
// Each node gets its own network namespace if the caller may create namespaces, joined by a bridge;
// otherwise the nodes share the loopback device and differ by their ports. Rig.Where reports which.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/client"
)

// Options describe the pool to start.
type Options struct {
	// Binary is the outboard program.
	Binary string
	// Dir holds the nodes' state. It is removed by Close.
	Dir string
	// Nodes are started in order; the first founds the pool.
	Nodes []Spec
	// Loopback keeps the nodes out of namespaces even if these are allowed.
	Loopback bool
	// Congestion names the congestion control of TCP in the nodes' namespaces; "": that of this machine.
	Congestion string
	// Env is added to every node's environment.
	Env []string
	// Log receives the output of the nodes; nil discards it.
	Log io.Writer
}

// A Spec describes one node.
type Spec struct {
	Name string
	// Devices is the value of --devices; "" offers all devices.
	Devices string
	// Args are added to `outboard up`.
	Args []string
	// Alone keeps the node from joining the first node: its arguments determine its pool.
	Alone bool
	// Bare makes the node a place in the network only, for Exec: no `outboard up` runs there.
	Bare bool
	// NoGroups hides the machine's control groups from the node, as if it had none. Hiding them needs
	// a mount namespace, which root may create; most users without that right have no groups anyway.
	NoGroups bool
	// Link, if not nil, is the emulated network path of connections that other nodes and their
	// programs make to this node. Connections pass through a relay in this process; Node.SetLink
	// changes the path.
	Link *netem.Link
}

// A Rig is a running pool.
type Rig struct {
	opts    Options
	network network
	nodes   map[string]*Node
}

// A Node is one running `outboard up`.
type Node struct {
	Name, Addr string
	index      int // in Options.Nodes
	rig        *Rig
	spec       Spec
	namespace  string
	up         *exec.Cmd
	exited     chan error
	relay      *netem.Relay
}

// Start starts the pool and waits until every node sees every other node.
func Start(ctx context.Context, opts Options) (*Rig, error) {
	r := &Rig{opts: opts, nodes: map[string]*Node{}}
	if err := r.start(ctx); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Rig) start(ctx context.Context) error {
	network, err := newNetwork(ctx, len(r.opts.Nodes), r.opts.Loopback)
	if err != nil {
		return err
	}
	r.network = network
	if err := r.setCongestion(ctx); err != nil {
		return err
	}
	for i, spec := range r.opts.Nodes {
		if err := r.startNode(ctx, i, spec); err != nil {
			return fmt.Errorf("node %s: %w", spec.Name, err)
		}
	}
	return nil
}

func (r *Rig) startNode(ctx context.Context, i int, spec Spec) error {
	n := &Node{Name: spec.Name, index: i, rig: r, spec: spec, Addr: r.network.addr(i), namespace: r.network.namespace(i)}
	if spec.Bare {
		r.nodes[spec.Name] = n
		return nil
	}
	if i > 0 && !spec.Alone {
		token, err := r.Node(r.opts.Nodes[0].Name).Output(ctx, "token")
		if err != nil {
			return fmt.Errorf("get a token: %w", err)
		}
		n.spec.Args = append(n.spec.Args, "--join", r.Node(r.opts.Nodes[0].Name).Addr, "--token", strings.TrimSpace(token))
	}
	r.nodes[spec.Name] = n
	if err := n.startRelay(ctx); err != nil {
		return err
	}
	if err := n.Up(ctx, n.spec.Args...); err != nil {
		return err
	}
	running := slices.DeleteFunc(slices.Collect(maps.Values(r.nodes)), func(n *Node) bool { return n.spec.Bare })
	for _, seen := range running {
		if err := seen.waitFor(ctx, len(running)); err != nil {
			return err
		}
	}
	return nil
}

// Up starts the node's process: the first time with the arguments that join the pool, and after
// Kill without arguments.
func (n *Node) Up(ctx context.Context, args ...string) error {
	up := append([]string{"up", "--name", n.Name, "--listen", n.Addr}, args...)
	if n.relay != nil {
		up = append(up, "--advertise", n.relay.Addr())
	}
	if n.spec.Devices != "" {
		up = append(up, "--devices", n.spec.Devices)
	}
	program := append([]string{n.rig.opts.Binary}, up...)
	if n.spec.NoGroups {
		program = withoutGroups(ctx, program)
	}
	// The process outlives ctx: Close and Kill end it.
	n.up = n.outboard(context.WithoutCancel(ctx), program)
	n.up.Stdout, n.up.Stderr = n.rig.opts.Log, n.rig.opts.Log
	n.up.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.up.Start(); err != nil {
		return err
	}
	n.exited = make(chan error, 1)
	go func(cmd *exec.Cmd, exited chan error) { exited <- cmd.Wait() }(n.up, n.exited)
	return nil
}

// waitFor waits until the node sees count nodes. It queries the node's socket: a command for each
// attempt would occupy a processor that the starting nodes need.
func (n *Node) waitFor(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	local := &client.Client{Data: n.Data()}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if nodes, err := local.Nodes(ctx); err == nil && len(nodes) >= count {
			return nil
		}
		select {
		case err := <-n.exited:
			n.exited <- err
			return fmt.Errorf("outboard up ended: %w", err)
		case <-ctx.Done():
			return fmt.Errorf("it does not see %d nodes: %w", count, ctx.Err())
		case <-tick.C:
		}
	}
}

// Node returns the node of that name.
func (r *Rig) Node(name string) *Node { return r.nodes[name] }

// Where describes how the nodes are separated.
func (r *Rig) Where() string { return r.network.where() }

// Command returns an outboard command that connects to the node, in its namespace.
func (n *Node) Command(ctx context.Context, args ...string) *exec.Cmd {
	return n.outboard(ctx, append([]string{n.rig.opts.Binary}, args...))
}

// outboard returns a command in the node's namespace, with the node's data folder.
func (n *Node) outboard(ctx context.Context, command []string) *exec.Cmd {
	cmd := n.Exec(ctx, command[0], command[1:]...)
	cmd.Env = append(cmd.Env, "OUTBOARD_DATA="+n.Data())
	return cmd
}

// Exec returns a command in the node's namespace.
func (n *Node) Exec(ctx context.Context, name string, args ...string) *exec.Cmd {
	command := inside(n.namespace, append([]string{name}, args...))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), n.rig.opts.Env...)
	cmd.WaitDelay = time.Minute // on a busy machine
	return cmd
}

// Output runs an outboard command and returns its standard output.
func (n *Node) Output(ctx context.Context, args ...string) (string, error) {
	out, err := n.Command(ctx, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}

// Data returns the folder of the node's state.
func (n *Node) Data() string { return filepath.Join(n.rig.opts.Dir, n.Name) }

// PID returns the process number of `outboard up`.
func (n *Node) PID() int { return n.up.Process.Pid }

// Kill kills the node's processes, as a loss of power would.
func (n *Node) Kill() error { return n.end(syscall.SIGKILL) }

// Stop stops the node gracefully.
func (n *Node) Stop() error { return n.end(syscall.SIGTERM) }

// stopLimit bounds the time in which a node must stop, on a busy machine.
const stopLimit = time.Minute

func (n *Node) end(sig syscall.Signal) error {
	if n.up == nil || n.up.Process == nil {
		return nil
	}
	// The whole process group: no child process outlives the node.
	if err := syscall.Kill(-n.up.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	select {
	case <-n.exited: //nolint:errcheck // a killed process ends with an error
	case <-time.After(stopLimit):
		_ = syscall.Kill(-n.up.Process.Pid, syscall.SIGKILL)
		<-n.exited //nolint:errcheck // likewise
		n.up = nil
		return fmt.Errorf("node %s did not stop within %v", n.Name, stopLimit)
	}
	n.up = nil
	return nil
}

// Close stops all nodes, the last one first, and removes the network and the nodes' folders.
func (r *Rig) Close() error {
	var errs []error
	for _, spec := range slices.Backward(r.opts.Nodes) {
		if n := r.nodes[spec.Name]; n != nil {
			errs = append(errs, n.Stop())
			if n.relay != nil {
				errs = append(errs, n.relay.Close())
			}
		}
	}
	if r.network != nil {
		errs = append(errs, r.network.close())
	}
	return errors.Join(append(errs, os.RemoveAll(r.opts.Dir))...)
}
