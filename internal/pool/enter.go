package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// DefaultReplaceAfter is the default time after which another node takes over the copy of an absent
// node: longer than a machine's restart.
const DefaultReplaceAfter = 10 * time.Minute

// authorityFile holds a new authority until the pool's state does.
const authorityFile = "authority.json"

// EnterOptions identifies the pool that a node belongs to.
type EnterOptions struct {
	// Dir is where the node keeps its identity and its part of the pool's state.
	Dir string
	// Name is the node's name. A node with an identity has its name already; another is refused.
	Name outboard.NodeID
	// Addr is the address at which other nodes reach this node. The node passes connections to it
	// with one of Protocols to Pool.ServeConn.
	Addr string
	// RouteListen and RouteAdvertise are for the connections between embedded servers.
	// The default is an ephemeral port of Addr's host, chosen once.
	RouteListen, RouteAdvertise string
	// Join is the address of a node of the pool, and Token its invitation. A node with an
	// identity needs neither: Join is another address at which it looks for its pool. Without them a
	// node founds a pool.
	Join, Token string
	// NATSURL puts the pool's state on an existing NATS cluster, with the credentials in the
	// file NATSCreds. Holders of the credentials are members of the pool.
	NATSURL, NATSCreds string
	// ReplaceAfter is how long one of three nodes that keep the state may be absent before
	// another node keeps its copy; 0: for ever.
	ReplaceAfter time.Duration
	// TenantStore is how much each tenant may keep in the state; 0: a default.
	TenantStore outboard.Bytes
	Logger      *slog.Logger
}

// peers returns the address of a node that the operator names.
func (o *EnterOptions) peers() []string {
	if o.Join == "" {
		return nil
	}
	return []string{o.Join}
}

// routePeers returns the address at which the server of that node listens unless its operator has
// chosen another one: at the next port.
func (o *EnterOptions) routePeers() []string {
	host, port, err := net.SplitHostPort(o.Join)
	if err != nil {
		return nil
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil
	}
	return []string{net.JoinHostPort(host, strconv.Itoa(number+1))}
}

func (o *EnterOptions) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if host, _, err := net.SplitHostPort(o.Addr); err == nil && o.RouteListen == "" {
		o.RouteListen = net.JoinHostPort(host, "0")
	}
}

// Protocols returns the TLS application protocols that Pool.ServeConn serves.
func Protocols() []string { return []string{state.Protocol, authority.JoinProtocol} }

// Enter loads or creates a node's identity and opens the pool's state: with the identity of an
// earlier start, by joining, or by founding a pool. The caller closes the state.
func Enter(ctx context.Context, opts EnterOptions) (*authority.Identity, *state.State, error) {
	opts.setDefaults()
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("enter the pool: %w", err)
	}
	if opts.NATSURL != "" {
		return enterExternal(ctx, opts)
	}
	id, peers, err := enterIdentity(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	stateDir := filepath.Join(opts.Dir, "state")
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("enter the pool: %w", err)
	}
	s, err := state.Open(ctx, state.Options{
		Dir: stateDir, Name: string(id.Name()), Pool: id.PoolID(), Addr: opts.Addr, Peers: peers, RoutePeers: opts.routePeers(),
		Dial: dialState(id, opts.Logger), Listen: opts.RouteListen, Advertise: opts.RouteAdvertise,
		TLS: id.RouteTLS, ReplaceAfter: opts.ReplaceAfter, TenantStore: opts.TenantStore, Logger: opts.Logger,
	})
	if err != nil {
		return nil, nil, fmt.Errorf("enter the pool: %w", err)
	}
	if err := depositAuthority(ctx, opts.Dir, s); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("enter the pool: %w", err), s.Close())
	}
	return id, s, nil
}

func dialState(id *authority.Identity, log *slog.Logger) func(context.Context, string) (net.Conn, error) {
	dialer := &tls.Dialer{Config: id.AnyNodeTLS(state.Protocol)}
	return func(ctx context.Context, addr string) (net.Conn, error) {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err != nil {
			return nil, err
		}
		// A tls.Dialer returns only TLS connections.
		secured, ok := conn.(*tls.Conn)
		if !ok {
			return conn, nil
		}
		peer, err := id.PeerOf(secured.ConnectionState())
		if err == nil {
			err = authority.CloseOnRevoke(id, peer.Fingerprint, conn)
		}
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return authority.ObserveRefusal(id, conn, log), nil
	}
}

// enterIdentity loads the node's identity, or obtains one by joining or founding a pool.
func enterIdentity(ctx context.Context, opts EnterOptions) (*authority.Identity, []string, error) {
	id, err := loadIdentity(opts)
	if !errors.Is(err, fs.ErrNotExist) {
		return id, opts.peers(), err
	}
	if opts.Join == "" {
		id, err := foundPool(opts)
		return id, nil, err
	}
	token, err := authority.ParseToken(opts.Token)
	if err != nil {
		return nil, nil, err
	}
	id, peers, err := authority.Join(ctx, opts.Join, token, opts.Name)
	if err != nil {
		return nil, nil, err
	}
	peers = append([]string{opts.Join}, peers...)
	// The first opening of the state, after this, saves the peers. A crash in between would leave
	// an identity that founds a pool: so the state's own record is written first.
	return id, peers, errors.Join(state.RememberPeers(filepath.Join(opts.Dir, "state"), peers), id.Save(opts.Dir))
}

func loadIdentity(opts EnterOptions) (*authority.Identity, error) {
	id, err := authority.Load(opts.Dir)
	if err == nil && opts.Name != "" && opts.Name != id.Name() {
		return nil, outboard.Errorf(outboard.Invalid, "enter the pool",
			"this node is %q already: leave --name out, or give another --data directory for %q", id.Name(), opts.Name)
	}
	return id, err
}

// newAuthority creates a pool's authority. A machine that has started without a network may have the
// clock of 1970: certificates of that time would have expired when the clock is set.
func newAuthority(now time.Time) (*authority.Authority, error) {
	if now.Year() < firstYear {
		return nil, outboard.Errorf(outboard.Invalid, "found a pool", "the clock of this machine says %s: set it first", now.UTC().Format(time.DateOnly))
	}
	return authority.Found(now)
}

// firstYear is the year of the first pool.
const firstYear = 2026

// foundPool creates a pool's authority and the identity of its first node.
func foundPool(opts EnterOptions) (*authority.Identity, error) {
	if err := authority.CheckName(opts.Name); err != nil {
		return nil, err
	}
	ca, err := newAuthority(time.Now())
	if err != nil {
		return nil, err
	}
	id, err := ca.NewIdentity(opts.Name, time.Now())
	if err != nil {
		return nil, err
	}
	text, err := ca.Marshal()
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(opts.Dir, authorityFile), text, 0o600); err != nil {
		return nil, fmt.Errorf("found a pool: %w", err)
	}
	return saveIdentity(id, opts.Dir)
}

// depositAuthority puts a new authority into the pool's state, where every node that keeps a copy
// of it can admit others, and removes it from the founder's disk.
func depositAuthority(ctx context.Context, dir string, s *state.State) error {
	path := filepath.Join(dir, authorityFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := createAuthority(ctx, s, text); err != nil && !errors.Is(err, state.ErrConflict) {
		return err
	}
	return os.Remove(path)
}

// enterExternal opens the state on an existing cluster. The credentials authorize the node: it
// reads the authority and signs its own certificate.
func enterExternal(ctx context.Context, opts EnterOptions) (*authority.Identity, *state.State, error) {
	var entered atomic.Pointer[authority.Identity]
	member := func() error {
		// Not if another node refuses its certificate: in a cluster this does not end its access.
		if id := entered.Load(); id != nil && errors.Is(authority.CheckMembership(id), authority.ErrRemoved) {
			return authority.ErrRemoved
		}
		return nil
	}
	s, err := state.Connect(ctx, state.ConnectOptions{URL: opts.NATSURL, Creds: opts.NATSCreds, TenantStore: opts.TenantStore, Logger: opts.Logger, Member: member})
	if err != nil {
		return nil, nil, fmt.Errorf("enter the pool: %w", err)
	}
	id, err := externalIdentity(ctx, opts, s)
	if err != nil {
		return nil, nil, errors.Join(err, s.Close())
	}
	entered.Store(id)
	return id, s, nil
}

func externalIdentity(ctx context.Context, opts EnterOptions, s *state.State) (*authority.Identity, error) {
	ca, err := externalAuthority(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("enter the pool: %w", err)
	}
	id, err := loadIdentity(opts)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case id.PoolID() != ca.PoolID():
		return nil, outboard.Errorf(outboard.Denied, "enter the pool",
			"this node belongs to another pool than the one at %s: give another --data directory", opts.NATSURL)
	default:
		return id, nil
	}
	if id, err = ca.NewIdentity(opts.Name, time.Now()); err != nil {
		return nil, err
	}
	return saveIdentity(id, opts.Dir)
}

// externalAuthority reads the pool's authority, or creates it for a new pool.
func externalAuthority(ctx context.Context, s *state.State) (*authority.Authority, error) {
	ca, err := readAuthority(ctx, s)
	if !errors.Is(err, state.ErrNotFound) {
		return ca, err
	}
	if ca, err = newAuthority(time.Now()); err != nil {
		return nil, err
	}
	text, err := ca.Marshal()
	if err != nil {
		return nil, err
	}
	if err = createAuthority(ctx, s, text); errors.Is(err, state.ErrConflict) {
		return readAuthority(ctx, s)
	}
	return ca, err
}

// saveIdentity saves an identity for the next start.
func saveIdentity(id *authority.Identity, dir string) (*authority.Identity, error) {
	if err := id.Save(dir); err != nil {
		return nil, err
	}
	return id, nil
}
