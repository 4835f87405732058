package cli

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/node"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// routes holds the connections from a program to the nodes of its devices.
type routes struct {
	opts runOptions
	data string
	hold *client.Hold

	warming sync.WaitGroup
	stop    context.CancelFunc
	remotes map[string]*borrow.Remote // by the node's address
}

// newRoutes starts to connect to the devices' nodes, while the program starts.
func newRoutes(ctx context.Context, data string, opts runOptions, hold *client.Hold) *routes {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &routes{opts: opts, data: data, hold: hold, stop: stop, remotes: map[string]*borrow.Remote{}}
	for i, l := range hold.Leases() {
		if l.Addr == "" || r.remotes[l.Addr] != nil {
			continue
		}
		remote := borrow.NewRemote(borrow.RemoteOptions{
			Addr: l.Addr, TLS: func() (*tls.Config, error) { return sessionTLS(hold, i) },
			DeadAfter: opts.deadAfter * 19 / 20, // leaves time to report the loss to the program
		})
		r.remotes[l.Addr] = remote
		r.warming.Go(func() { remote.Warm(ctx) })
	}
	return r
}

// leases returns the leases of the program's devices.
func (r *routes) leases() []borrow.Lease {
	var all []borrow.Lease
	for i, l := range r.hold.Leases() {
		all = append(all, borrow.Lease{
			Name: string(l.Device), Memory: l.Memory,
			Dial: func(ctx context.Context) (borrow.Link, error) { return r.dial(ctx, i) },
		})
	}
	return all
}

// dial opens a session of lease i. It reads the lease again, since its claim changes with each
// renewal.
func (r *routes) dial(ctx context.Context, i int) (borrow.Link, error) {
	l := r.hold.Leases()[i]
	if l.Addr == "" {
		return borrow.Local(ctx, filepath.Join(r.data, node.SessionSocket), l.Claim)
	}
	return r.remotes[l.Addr].Dial(ctx, l.Claim)
}

func (r *routes) close() {
	r.stop()
	r.warming.Wait()
	for _, remote := range r.remotes {
		_ = remote.Close()
	}
}

// sessionTLS returns a TLS configuration that accepts only the node of lease i.
func sessionTLS(hold *client.Hold, i int) (*tls.Config, error) {
	const op = "the session's certificate"
	c, l := hold.Credentials(), hold.Leases()[i]
	cert, err := tls.X509KeyPair(c.Certificate, c.Key)
	if err != nil {
		return nil, outboard.Errorf(outboard.Protocol, op, "%w", err)
	}
	roots, err := parseRoots(c.Authority)
	if err != nil {
		return nil, outboard.Errorf(outboard.Protocol, op, "%w", err)
	}
	config := authority.SessionClientTLS(roots, cert, l.About.Node, l.Fingerprint)
	config.NextProtos = []string{borrow.Protocol}
	return config, nil
}

// parseRoots parses the authorities that the node trusts: its own, and the earlier ones.
func parseRoots(text []byte) ([]*x509.Certificate, error) {
	var roots []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		root, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	if len(roots) == 0 {
		return nil, errors.New("the node sent no authority")
	}
	return roots, nil
}

// endWithLeases ends the program's sessions when the node says that a lease has ended. A device's
// node does so as well, but not one that was removed from the pool. The end of the program's own
// node ends no session at once: the leases may stand.
func endWithLeases(ctx context.Context, hold *client.Hold, server *borrow.Server) {
	select {
	case <-ctx.Done():
	case <-hold.Done():
		if err := hold.Err(); err != nil && !endedWithNode(err) {
			server.EndSessions(err)
		}
	}
}

// endedWithNode reports whether leases ended because the program's own node did.
func endedWithNode(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// lossWatch reports the loss of a session on standard error, once.
type lossWatch struct {
	stopping chan struct{}
	done     chan struct{}
	lost     bool // read after done
}

// watchLosses watches for losses until the program has ended.
func watchLosses(env *Env, server *borrow.Server, hold *client.Hold) *lossWatch {
	w := &lossWatch{stopping: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		select {
		case <-server.Lost():
		case <-w.stopping:
			select {
			case <-server.Lost():
			default:
				return
			}
		}
		w.lost = true
		reason := message(server.Loss())
		if endedWithNode(hold.Err()) { // The device's node does not know why the leases have ended.
			reason = "the program's own node, which held its leases, has ended: " + reason
		}
		fmt.Fprintf(env.Stderr, "outboard: session lost: %s\n", reason)
	}()
	return w
}

// stop ends the watch and reports whether a session was lost.
func (w *lossWatch) stop() bool {
	close(w.stopping)
	<-w.done
	return w.lost
}
