package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/unixsock"
)

func (n *Node) openServices(ctx context.Context) (lifecycle.Resource, error) {
	r, err := services.Open(ctx, services.Options{
		State: n.state, Members: n.pool, Self: n.self.ID, Boot: n.self.Boot,
		Logger: n.opts.Log.With("plane", "pool", "node", n.self.ID),
	})
	n.services = r
	return r, err
}

// openCalls starts the process that carries this node's calls.
func (n *Node) openCalls(ctx context.Context) (lifecycle.Resource, error) {
	log := n.opts.Log.With("plane", "fabric", "node", n.self.ID)
	programs, err := n.listenPrograms(ctx)
	if err != nil {
		return nil, err
	}
	port, err := n.listenPlain(ctx)
	if err != nil {
		return nil, errors.Join(err, programs.Close())
	}
	h, err := calls.OpenHost(ctx, calls.HostOptions{
		Config: n.callsConfig(log), Launch: n.launcher(log), State: n.state, Registry: n.services,
		Identify: n.identities.identify, Admit: admitPrograms(n), Programs: programs, Plain: port, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	n.calls, n.peers.calls = h, h
	if port != nil {
		log.Info("plain gRPC is served", "addr", port.Addr().String())
	}
	return callsResource{h, n.folder.at(client.CallsSocketName)}, nil
}

// admitPrograms returns a function that decides about the processes that connect to the socket for
// programs: they have the node's user, which workers, ranks and tenants' processes have as well.
func admitPrograms(n *Node) func(pid int) calls.Admission {
	owns := ownsProcess(n.host, &n.jobs)
	return func(pid int) calls.Admission {
		if owns(pid) {
			return calls.Refuse
		}
		if tenant := n.identities.tenantOf(pid); tenant != "" {
			return calls.AdmitTenant(tenant)
		}
		return calls.AdmitProgram
	}
}

// A callsResource is the host of the calls' process, with its socket.
type callsResource struct {
	*calls.Host
	socket string
}

// Close implements lifecycle.Resource.
func (c callsResource) Close() error {
	err := c.Host.Close()
	if removed := os.Remove(c.socket); !errors.Is(removed, fs.ErrNotExist) {
		err = errors.Join(err, removed)
	}
	return err
}

func (n *Node) callsConfig(log *slog.Logger) calls.Config {
	return calls.Config{
		Self: n.self.ID, Boot: n.self.Boot, Identity: n.folder.at(poolDir),
		Heartbeat: n.opts.Heartbeat, DeadAfter: n.opts.DeadAfter, Slow: n.opts.SlowCall, MaxCalls: n.opts.MaxCalls, ClientTimeout: n.opts.ClientTimeout, Level: n.logLevel(log),
	}
}

// launcher returns the launcher of the calls' process: a helper of the node, or this process.
func (n *Node) launcher(log *slog.Logger) helper.Launcher {
	if n.opts.CallsInside {
		return calls.InProcess(calls.ProcessOptions{Version: n.opts.Version, Logger: log})
	}
	return helper.Command(append(slices.Clone(n.opts.Helper), "calls"), log)
}

// listenPrograms opens the socket for programs. The process of a node that died a moment ago
// may still listen on it.
func (n *Node) listenPrograms(ctx context.Context) (*net.UnixListener, error) {
	path := n.folder.at(client.CallsSocketName)
	limit, cancel := context.WithTimeout(ctx, socketLimit)
	defer cancel()
	for {
		l, err := unixsock.Listen(path)
		if err == nil || limit.Err() != nil {
			return l, err
		}
		sleep(limit, 50*time.Millisecond)
	}
}

// socketLimit is how long the process of a node that has died may take to end.
const socketLimit = 3 * time.Second

const defaultGRPC = "127.0.0.1:7435"

// listenPlain opens the port for plain gRPC, nil for none.
func (n *Node) listenPlain(ctx context.Context) (*net.TCPListener, error) {
	return listenLocal(ctx, n.opts.GRPC, defaultGRPC, "--grpc")
}

// listenLocal opens a port for this machine's programs, nil for none. When another node has
// the default port, any port is taken.
func listenLocal(ctx context.Context, addr, standard, flag string) (*net.TCPListener, error) {
	var config net.ListenConfig
	switch addr {
	case "none":
		return nil, nil //nolint:nilnil // no port and no error
	case "":
		if l, err := config.Listen(ctx, "tcp", standard); err == nil {
			return tcp(l)
		}
		l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return tcp(l)
	}
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, outboard.Errorf(outboard.Conflict, "", "%w: name another address with %s, or none", err, flag)
	}
	return tcp(l)
}

func tcp(l net.Listener) (*net.TCPListener, error) {
	t, ok := l.(*net.TCPListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("listen on %s: no TCP", l.Addr()), l.Close())
	}
	return t, nil
}

// successor returns the program that takes the calls over: the named one, or this node's own in its
// present state on disk.
func (n *Node) successor(named string) (string, error) {
	switch {
	case n.opts.CallsInside:
		return "", nil
	case named != "" && !filepath.IsAbs(named):
		return "", outboard.Errorf(outboard.Invalid, "upgrade", "%s: name the program with its whole path", named)
	case named != "":
		return named, nil
	case n.opts.Helper[0] != ownProgram:
		return n.opts.Helper[0], nil
	}
	return os.Executable()
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
