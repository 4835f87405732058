package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/bench/netem"
)

// startRelay starts the relay of a node with a Link, in the node's namespace.
func (n *Node) startRelay(ctx context.Context) error {
	if n.spec.Link == nil {
		return nil
	}
	host, _, err := net.SplitHostPort(n.Addr)
	if err != nil {
		return err
	}
	var listener net.Listener
	if err := inNamespace(n.namespace, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
		return err
	}); err != nil {
		return fmt.Errorf("relay: %w", err)
	}
	n.relay = netem.StartRelay(ctx, netem.Options{Listener: listener, Link: *n.spec.Link, Dial: n.dial})
	return nil
}

// dial connects to the node itself, in its namespace.
func (n *Node) dial(ctx context.Context) (conn net.Conn, err error) {
	err = inNamespace(n.namespace, func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", n.Addr)
		return err
	})
	return conn, err
}

// SetLink changes the emulated network path of connections that other nodes and their programs make
// to this node from now on. The node's Spec needs a Link.
func (n *Node) SetLink(link netem.Link) { n.relay.SetLink(link) }

// CutLink interrupts the connections of other nodes and their programs to this node, or repairs
// them. The node's Spec needs a Link.
func (n *Node) CutLink(down bool) { n.relay.Cut(down) }

// LinkBytes returns the number of bytes that other nodes and their programs have sent to this node
// through its Link so far, and the number of bytes that they received.
func (n *Node) LinkBytes() (up, down int64) { return n.relay.Bytes() }

// LinkLate returns by how much the emulation of the node's Link has delayed deliveries beyond their
// due times so far, in each direction.
func (n *Node) LinkLate() (up, down netem.Lateness) { return n.relay.Late() }

// inNamespace calls f, which must not start goroutines that open sockets, on a thread in a
// network namespace. A socket stays in the namespace in which it was opened.
func inNamespace(name string, f func() error) error {
	if name == "" {
		return f()
	}
	// The thread returns to its namespace instead of ending: processes that it has started
	// would get their parent-death signal (PR_SET_PDEATHSIG is per thread).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer own.Close()
	if err := enterNamespace(filepath.Join(namespaceDir, name)); err != nil {
		return err
	}
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		panic(fmt.Sprintf("return to this process's network namespace: %v", back)) //nolint:forbidigo // the thread would go on in a foreign namespace
	}
	return err
}

func enterNamespace(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
}
