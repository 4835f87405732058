package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
)

// A network separates the nodes.
type network interface {
	addr(i int) string
	// namespace returns the network namespace of node i, "" if the nodes share this process's.
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

// ports are addresses of the loopback device, each followed by a free port for the pool's state.
type ports []string

// Ports of nodes are below the ports that Linux assigns to outgoing connections (32768 and more),
// so that no connection occupies a port before its node listens.
const (
	firstPort = 10000
	lastPort  = 32000
)

// nextPort is the port at which this process continues its search for a free pair of ports. Each
// process begins at another port, so that two of them seldom try the same port at the same time.
var nextPort atomic.Int64

func newLoopback(ctx context.Context, count int) (ports, error) {
	nextPort.CompareAndSwap(0, int64(os.Getpid())*64)
	var addrs ports
	for range lastPort - firstPort {
		if len(addrs) == count {
			return addrs, nil
		}
		port := uint16(firstPort + nextPort.Add(2)%(lastPort-firstPort))
		addr := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		if isFree(ctx, addr) && isFree(ctx, netip.AddrPortFrom(addr.Addr(), port+1)) {
			addrs = append(addrs, addr.String())
		}
	}
	return nil, errors.New("no two free ports in a row on the loopback device")
}

func isFree(ctx context.Context, addr netip.AddrPort) bool {
	var listen net.ListenConfig
	l, err := listen.Listen(ctx, "tcp", addr.String())
	return err == nil && l.Close() == nil
}

func (p ports) addr(i int) string  { return p[i] }
func (ports) namespace(int) string { return "" }
func (ports) where() string        { return "on loopback ports of this machine" }
func (ports) close() error         { return nil }

// namespaces gives each node a network namespace; a bridge in another namespace connects all, so
// that this machine's own interfaces are not touched.
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

// inside returns the command that runs command in a network namespace; "" is this process's. It is
// not `ip netns exec`, which mounts a /sys of its own over the machine's and so hides the control
// groups: a node would isolate its workers by other means than it has in use.
func inside(namespace string, command []string) []string {
	if namespace == "" {
		return command
	}
	return append([]string{"nsenter", "--net=" + filepath.Join(namespaceDir, namespace), "--"}, command...)
}

// namespaceDir has the named network namespaces (ip-netns(8)).
const namespaceDir = "/run/netns"

// withoutGroups returns the command that runs command in a mount namespace that lacks the file
// systems of control groups; command itself where no namespace can be created.
func withoutGroups(ctx context.Context, command []string) []string {
	if exec.CommandContext(ctx, "unshare", "--mount", "--", "true").Run() != nil {
		return command
	}
	script := `umount --lazy /sys/fs/cgroup; exec "$0" "$@"` // fails where there are none
	return append([]string{"unshare", "--mount", "--", "sh", "-c", script}, command...)
}

func ip(ctx context.Context, args string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}
