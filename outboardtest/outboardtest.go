// Package outboardtest runs a pool in one process, for tests of programs that use a pool.
//
// The nodes are real: they listen on the loopback interface, keep their state in
// temporary folders, and start their workers as processes. These processes execute the
// test binary again, so a test's package needs
//
//	func TestMain(m *testing.M) { outboardtest.Main(m) }
//
// By default the nodes offer fake devices, which echo their input, so that no driver is
// needed.
package outboardtest

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/lend/fake"
	"github.com/outboard-run/outboard/internal/cli"
	"github.com/outboard-run/outboard/internal/freeport"
	"github.com/outboard-run/outboard/internal/node"
	"github.com/outboard-run/outboard/internal/train/object"
)

// The first argument of the test binary when it is started as another program.
const (
	helperArg  = "outboardtest-helper"
	commandArg = "outboardtest-command"
	programArg = "outboardtest-program"
)

// Main runs the tests, or the program as which the test binary was started.
func Main(m *testing.M) {
	// Under the race detector a process sleeps for a second before it exits, by default.
	if os.Getenv("GORACE") == "" {
		_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	}
	if len(os.Args) < 2 {
		os.Exit(m.Run()) //nolint:forbidigo // this is a main
	}
	switch rest := os.Args[2:]; os.Args[1] {
	case helperArg:
		if len(rest) == 1 && (rest[0] == "calls" || rest[0] == "tenant") || len(rest) > 0 && rest[0] == "rank" {
			os.Exit(cli.Process().Main(append([]string{"internal"}, rest...))) //nolint:forbidigo // this is a main
		}
		os.Exit(fake.Helper(rest)) //nolint:forbidigo // this is a main
	case commandArg:
		env := cli.Process()
		env.Helper = []string{os.Args[0], helperArg}
		env.Vendors = func(dir string) (string, error) { return dir, os.MkdirAll(dir, 0o700) }
		os.Exit(env.Main(rest)) //nolint:forbidigo // this is a main
	case programArg:
		os.Exit(fake.Program(rest)) //nolint:forbidigo // this is a main
	}
	os.Exit(m.Run()) //nolint:forbidigo // this is a main
}

// Program returns the command line of a program that uses a fake device. fake.Program
// describes its arguments.
func Program(args ...string) []string { return append([]string{os.Args[0], programArg}, args...) }

// A Spec describes a node.
type Spec struct {
	// Name is the node's name.
	Name outboard.NodeID
	// NoDevices starts the node without devices.
	NoDevices bool
	// Models serves the interfaces of models on a separate port, which Client().Status names.
	Models bool
	// Process runs the node in a separate process, which Kill ends. Its LeaseTTL, DeadAfter and Log
	// are the defaults.
	Process bool
}

// Options configures a pool.
type Options struct {
	// Nodes are started in order; the first founds the pool.
	Nodes []Spec
	// Jobs determines which ranks of training jobs the nodes run: "confined" or "trusted"; "" means
	// none.
	Jobs string
	// Objects is the bucket in which the nodes store datasets and checkpoints, in the format of
	// `outboard up --objects`; its credentials are the AWS_* variables of the environment.
	Objects string
	// LeaseTTL and DeadAfter replace the nodes' defaults, so that tests need not wait as
	// long; 0 means the defaults.
	LeaseTTL, DeadAfter time.Duration
	// Log receives the nodes' log records; nil discards them.
	Log *slog.Logger
}

// A Pool is a running pool.
type Pool struct {
	t     testing.TB
	opts  Options
	nodes map[outboard.NodeID]*Node
}

// A Node is one running node.
type Node struct {
	Name outboard.NodeID
	// Data is the node's folder.
	Data string

	t    testing.TB
	opts node.Options
	// objects is Options.Objects.
	objects string
	stop    func() error
	// process is the node's separate process, nil if there is none or it does not run.
	process *nodeProcess
	spec    Spec
}

// Start starts a pool and stops it when the test ends.
func Start(t testing.TB, opts Options) *Pool {
	t.Helper()
	p := &Pool{t: t, opts: opts, nodes: map[outboard.NodeID]*Node{}}
	for i, spec := range opts.Nodes {
		n := p.add(spec)
		if i > 0 {
			founder := p.Node(opts.Nodes[0].Name)
			token, err := founder.Client().Token(t.Context(), time.Minute)
			if err != nil {
				t.Fatal(err)
			}
			n.opts.Join, n.opts.Token = token.Addr, token.Token
		}
		n.Start()
	}
	for _, n := range p.nodes {
		n.await(func() bool {
			nodes, err := n.Client().Nodes(t.Context())
			return err == nil && len(nodes) == len(opts.Nodes)
		})
	}
	return p
}

// freeRoutes has the state of a node listen at a port that the kernel chooses at each start: the port
// after the node's may be in use.
const freeRoutes = "127.0.0.1:0"

// add adds a node to the pool without starting it.
func (p *Pool) add(spec Spec) *Node {
	// t.TempDir returns paths that are too long for a socket's address.
	data, err := os.MkdirTemp("", "outboardtest-")
	if err != nil {
		p.t.Fatal(err)
	}
	port, err := freeport.Reserve() // so that no other socket gets it while the node is stopped
	if err != nil {
		p.t.Fatal(err)
	}
	n := &Node{Name: spec.Name, Data: data, t: p.t, spec: spec, objects: p.opts.Objects}
	n.opts = node.Options{
		Data: data, Name: spec.Name, Listen: port.Addr(), Routes: freeRoutes, Version: "test",
		Helper:   []string{os.Args[0], helperArg},
		LeaseTTL: p.opts.LeaseTTL, DeadAfter: p.opts.DeadAfter, Log: p.opts.Log,
		Offer:       func(outboard.Device) bool { return !spec.NoDevices },
		CallsInside: true, Jobs: p.opts.Jobs,
	}
	if spec.Models {
		n.opts.Models = "127.0.0.1:0"
	}
	n.opts.Objects = p.bucket()
	p.nodes[spec.Name] = n
	p.t.Cleanup(func() {
		n.Stop()
		_ = port.Close()
		_ = os.RemoveAll(data)
	})
	return n
}

// bucket returns the nodes' bucket, the zero value for none.
func (p *Pool) bucket() object.Options {
	if p.opts.Objects == "" {
		return object.Options{}
	}
	o, err := object.Parse(p.opts.Objects)
	if err != nil {
		p.t.Fatal(err)
	}
	o.Credentials = object.Credentials{Key: os.Getenv("AWS_ACCESS_KEY_ID"), Secret: os.Getenv("AWS_SECRET_ACCESS_KEY"), Token: os.Getenv("AWS_SESSION_TOKEN")}
	return o
}

// Node returns the node with the given name. It fails the test if there is none.
func (p *Pool) Node(name outboard.NodeID) *Node {
	p.t.Helper()
	n := p.nodes[name]
	if n == nil {
		p.t.Fatalf("the pool has no node %s", name)
	}
	return n
}

// Start starts a stopped node again, with its data folder and address.
func (n *Node) Start() {
	n.t.Helper()
	if n.spec.Process {
		n.startProcess()
		return
	}
	running, err := node.New(n.opts)
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- running.Run(ctx, func() { close(ready) }) }()
	n.stop = func() error {
		cancel()
		return <-done
	}
	select {
	case <-ready:
		// A restart uses the same address, where the other nodes expect it.
		n.opts.Listen, n.opts.Join, n.opts.Token = running.Status().Addr, "", ""
	case err := <-done:
		cancel()
		n.stop = nil
		n.t.Fatalf("node %s did not start: %v", n.Name, err)
	case <-time.After(startLimit):
		n.t.Fatalf("node %s is not ready after %v", n.Name, startLimit)
	}
}

// Stop shuts the node down gracefully. It does nothing if the node does not run.
func (n *Node) Stop() {
	n.t.Helper()
	n.stopProcess(syscall.SIGTERM)
	if n.stop == nil {
		return
	}
	if err := n.stop(); err != nil {
		n.t.Errorf("node %s: %v", n.Name, err)
	}
	n.stop = nil
}

// Client returns a client of the node.
func (n *Node) Client() *client.Client { return &client.Client{Data: n.Data} }

// Command returns an `outboard` command that uses the node.
func (n *Node) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], append([]string{commandArg}, args...)...)
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "OUTBOARD_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "OUTBOARD_DATA="+n.Data)
	return cmd
}

// startLimit bounds how long a node may take to start and to see the other nodes, on a busy
// machine.
const startLimit = 2 * time.Minute

// await polls ok until it returns true, and fails the test after startLimit.
func (n *Node) await(ok func() bool) {
	n.t.Helper()
	deadline := time.NewTimer(startLimit)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline.C:
			n.t.Fatalf("node %s: did not reach the expected state within %v", n.Name, startLimit)
		case <-tick.C:
		}
	}
}
