package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// A network keeps the nodes apart.
type network interface {
	addr(i int) string
	// namespace is empty when the nodes share this process's.
	namespace(i int) string
	where() string
	close() error
}

func newNetwork(ctx context.Context, count int, loopback bool) (network, error) {
	if !loopback && os.Geteuid() == 0 {
		if n, err := newNamespaces(ctx, count); err == nil {
			return n, nil
		}
	}
	return newLoopback(ctx, count)
}

// ports gives each node a port of the loopback device, with a free one above
// it for the pool's state.
type ports []string

func newLoopback(ctx context.Context, count int) (ports, error) {
	var addrs ports
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	var listen net.ListenConfig
	for tries := 0; len(addrs) < count && tries < 100*count; tries++ {
		l, err := listen.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		held = append(held, l)
		addr, err := netip.ParseAddrPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		next, err := listen.Listen(ctx, "tcp", netip.AddrPortFrom(addr.Addr(), addr.Port()+1).String())
		if err != nil {
			continue
		}
		held = append(held, next)
		addrs = append(addrs, addr.String())
	}
	if len(addrs) < count {
		return nil, errors.New("no two free ports in a row on the loopback device")
	}
	return addrs, nil
}

func (p ports) addr(i int) string  { return p[i] }
func (ports) namespace(int) string { return "" }
func (ports) where() string        { return "on loopback ports of this machine" }
func (ports) close() error         { return nil }

// namespaces gives each node a network namespace; a bridge in one more of them
// joins all, so nothing touches this machine's own interfaces.
type namespaces struct {
	prefix string
	count  int
}

func newNamespaces(ctx context.Context, count int) (*namespaces, error) {
	n := &namespaces{prefix: fmt.Sprintf("outboard-%d-", os.Getpid()), count: count}
	for try := 0; ; try++ {
		n.prefix = fmt.Sprintf("outboard-%d-%d-", os.Getpid(), try)
		if ip(ctx, "netns add "+n.hub()) == nil {
			break
		}
		if try == 20 {
			return nil, errors.New("network namespaces cannot be made here")
		}
	}
	if err := n.lay(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

func (n *namespaces) lay(ctx context.Context) error {
	steps := []string{
		"-n " + n.hub() + " link add bridge type bridge",
		"-n " + n.hub() + " link set bridge up",
	}
	for i := range n.count {
		ns, port := n.namespace(i), fmt.Sprintf("port%d", i)
		steps = append(steps,
			"netns add "+ns,
			"-n "+n.hub()+" link add "+port+" type veth peer name node netns "+ns,
			"-n "+n.hub()+" link set "+port+" master bridge up",
			fmt.Sprintf("-n %s addr add 10.77.0.%d/24 dev node", ns, i+1),
			"-n "+ns+" link set node up",
			"-n "+ns+" link set lo up")
	}
	for _, step := range steps {
		if err := ip(ctx, step); err != nil {
			return err
		}
	}
	return nil
}

func (n *namespaces) hub() string            { return n.prefix + "hub" }
func (n *namespaces) namespace(i int) string { return fmt.Sprintf("%snode%d", n.prefix, i) }
func (n *namespaces) addr(i int) string      { return fmt.Sprintf("10.77.0.%d:7433", i+1) }
func (n *namespaces) where() string          { return "in network namespaces of their own" }

func (n *namespaces) close() error {
	errs := []error{ip(context.Background(), "netns del "+n.hub())}
	for i := range n.count {
		errs = append(errs, ip(context.Background(), "netns del "+n.namespace(i)))
	}
	return errors.Join(errs...)
}

// Cut takes node i's link down, or up again. It needs namespaces.
func (n *Node) Cut(ctx context.Context, down bool) error {
	if n.namespace == "" {
		return errors.New("nodes on the loopback device have no link to cut")
	}
	state := "up"
	if down {
		state = "down"
	}
	return ip(ctx, "-n "+n.namespace+" link set node "+state)
}

func ip(ctx context.Context, args string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}
