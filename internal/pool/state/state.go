// Package state stores the state of a pool in JetStream streams, of NATS servers that the
// nodes embed or of an existing NATS cluster: one key-value table of the pool itself, logs,
// and the apps' buckets.
//
// All keys of the pool live in one table, "outboard", whose keys begin with the
// name of their part: "nodes/", "leases/", "queue/", "tokens/", "config/". One table
// is one stream, so all changes have one order (a grant is never seen before the
// node that holds it) and one Raft group has to elect a leader when a server dies.
//
// Data that not every watcher needs has streams of its own: a Log is a history of records
// for each key, a KV the stream of one app's bucket. Both have as many copies as the table,
// and move with it. Messages that are not stored go over subjects.
//
// Record docs/design/0003-pool-state.md says how an embedded table grows from
// one copy to three.
package state

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// Errors that callers test for.
var (
	// ErrConflict says that the key has another revision than expected.
	ErrConflict = errors.New("the key was changed by somebody else")
	// ErrNotFound says that the key has no value.
	ErrNotFound = errors.New("no such key")
	// ErrElsewhere says that this node does not serve the table now. The peer tries the next
	// node.
	ErrElsewhere = errors.New("this node keeps no copy of the pool's state")
)

// Options configures a pool's state in an embedded server.
type Options struct {
	// Dir is where the server keeps its data. It must exist.
	Dir string
	// Name is the node's name, unique in the pool and the same at every start.
	Name string
	// Pool names the pool. Servers of another pool are refused.
	Pool string
	// Addr is the address at which other nodes reach this one. The node must pass connections to it
	// with the protocol Protocol to ServeConn.
	Addr string
	// Peers are addresses of other nodes, "HOST:PORT". A node without saved state founds a pool if
	// there are none, and joins one otherwise. A node with saved state adds them to its remembered
	// peers.
	Peers []string
	// RoutePeers are addresses at which servers of other nodes may listen, for a node with saved state
	// whose remembered addresses are all out of date.
	RoutePeers []string
	// Dial opens a connection with the protocol Protocol to a node of the pool.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Listen is the address at which other servers reach this node's server, if the node keeps one
	// of three copies. The default is an ephemeral port of 127.0.0.1, chosen once.
	Listen string
	// Advertise is Listen as others see it. The default is Listen.
	Advertise string
	// TLS is used on both sides of a route between servers: it must present the
	// node's certificate, ask for the peer's and verify it, and refuse the nodes that fenced
	// reports.
	TLS func(fenced func(outboard.NodeID) bool) *tls.Config
	// ReplaceAfter is how long one of three nodes that keep a copy may be absent before another
	// node keeps it; 0: for ever.
	ReplaceAfter time.Duration
	// TenantStore bounds the data of each tenant in the state; 0: the default of package quota.
	TenantStore outboard.Bytes
	// Logger receives changes of the role and, at debug level, the server's log.
	Logger *slog.Logger
}

// FixedTLS returns an option TLS that fences no node.
func FixedTLS(config *tls.Config) func(func(outboard.NodeID) bool) *tls.Config {
	return func(func(outboard.NodeID) bool) *tls.Config { return config }
}

func (o *Options) setDefaults() {
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	if o.Pool == "" {
		o.Pool = "outboard"
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *Options) validate() error {
	switch {
	case o.Dir == "":
		return outboard.Errorf(outboard.Invalid, "open state", "no directory for the data")
	case o.Name == "":
		return outboard.Errorf(outboard.Invalid, "open state", "no node name")
	case o.TLS == nil:
		return outboard.Errorf(outboard.Invalid, "open state", "no TLS configuration for routes")
	}
	return nil
}

// State is an open connection to a pool's table.
// All methods may be called by several goroutines.
type State struct {
	table

	server *embedded // nil on an existing cluster

	denied    atomic.Uint64 // counts the refused operations of clients
	accounts  guard.Accounts
	tenants   tenantSet
	stores    *stores
	tables    *nodeTables // nil in an existing NATS cluster, of which every node has the credentials
	done      chan struct{}
	running   sync.WaitGroup
	closeOnce sync.Once
}

// Open starts the embedded server and waits until the table answers or ctx ends.
func Open(ctx context.Context, opts Options) (*State, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	e, err := openEmbedded(ctx, opts)
	if err != nil {
		return nil, err
	}
	s := &State{table: newTable(opts.Logger, opts.Name), server: e, done: make(chan struct{})}
	s.stores = newStores(s, opts.TenantStore)
	s.tables = newNodeTables(s, s.stores.spawn)
	s.unable = func() error { return e.checkMajority(s.nc) }
	if err := s.openTable(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openTable resumes what the node's role prescribes, such as an interrupted move, waits until the
// table answers, and starts the node's part in the pool's growth.
func (s *State) openTable(ctx context.Context) error {
	if s.server.role.get().Import {
		if err := s.server.importTable(ctx); err != nil {
			return fmt.Errorf("move the pool's state: %w", err)
		}
	}
	if err := s.connect(nats.InProcessServer(s.server), nats.RetryOnFailedConnect(true), s.server.clients.own()); err != nil {
		return err
	}
	if s.server.role.get().Mode == alone {
		if err := s.createTable(ctx, 1); err != nil {
			return fmt.Errorf("found the pool's state: %w", err)
		}
	}
	// The replacer starts before the table answers: a voter that was replaced meanwhile would wait
	// for ever.
	startReplacer(s)
	if err := awaitTable(ctx, s); err != nil {
		return err
	}
	if d := s.server.role.get(); d.Mode != guest && d.Ready {
		if err := upgradeLayout(ctx, s); err != nil {
			return err
		}
	}
	if err := s.register(ctx, false); err != nil {
		return err
	}
	return s.startGrowing()
}

func (s *State) startGrowing() error {
	run, cancel := context.WithCancel(context.Background())
	s.running.Go(func() {
		<-s.done
		cancel()
	})
	g := &grower{s: s, members: s.server.members}
	err := s.Watch(run, func(c Change) {
		if err := g.members.apply(c); err != nil {
			s.log.Warn("members of the pool", "error", err)
		}
	})
	if err != nil {
		return err
	}
	s.running.Go(func() { g.run(run) })
	s.running.Go(func() { s.watchStorage(run) })
	return nil
}

// Peers returns the addresses of this node and of other nodes, voters first: the addresses that a
// joining node needs.
func (s *State) Peers() []string {
	if s.server == nil {
		return nil
	}
	return append([]string{s.server.opts.Addr}, s.server.role.get().Peers...)
}

// Name returns the node's name, empty in an existing NATS cluster.
func (s *State) Name() string { return s.name }

// Role returns the node's role: "alone", "guest", "voter", or "external" when the table is in
// an existing cluster.
func (s *State) Role() string {
	if s.server == nil {
		return "external"
	}
	d := s.server.role.get()
	if d.Mode == voter && !d.Ready {
		return string(guest)
	}
	return string(d.Mode)
}

// KeepsCopy reports whether this node keeps a copy of the table.
func (s *State) KeepsCopy() bool {
	role := mode(s.Role())
	return role == alone || role == voter
}

// LiveCopies returns how many copies of the table are up to date at the moment.
func (s *State) LiveCopies(ctx context.Context) (int, error) {
	var stream jetstream.Stream
	err := s.retry(ctx, func(ctx context.Context) (err error) {
		stream, err = s.js.Stream(ctx, streamName)
		return err
	})
	if err != nil {
		return 0, unreachable("look at the table", err)
	}
	info := stream.CachedInfo()
	if info.Cluster == nil {
		return 1, nil
	}
	copies := 1
	for _, r := range info.Cluster.Replicas {
		if r.Current && !r.Offline {
			copies++
		}
	}
	return copies, nil
}

// StoredByTenant returns the bytes that the guards of this node charge each tenant for its data in
// the state. Names are spelled as in subjects.
func StoredByTenant(s *State) map[string]int64 {
	if s.stores == nil {
		return nil
	}
	return s.stores.held()
}

// Close ends the connection and the embedded server.
func (s *State) Close() error {
	s.closeOnce.Do(func() {
		close(s.done)
		s.running.Wait()
		if s.nc != nil {
			s.nc.Close()
		}
		if s.server != nil {
			s.server.stop()
		}
	})
	return nil
}
