package fabric

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/plain"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// headroom is the least message limit of the transports. It is above the usual limits of calls, so
// that the limit of the call is reached first.
const headroom = 64 << 20

// transportLimit returns the message limit for the transports: callers may raise the limit of a
// call.
func (o *options) transportLimit() int { return max(o.maxReceive, headroom) }

// Dial returns a connection to target:
//
//	inproc:NAME     a server in this process, see [WithNetwork]
//	unix:PATH       a server on this machine, over shared memory
//	node:           the services of the pool, through this machine's node; a path after
//	                the colon is that of another node's calls.sock
//	tcp:HOST:PORT   a server elsewhere, over TCP with TLS, see [WithTLS]
//	HOST:PORT       the same
//	grpc:HOST:PORT  a plain gRPC server; with TLS where WithTLS is given
//
// It does not wait for a connection: the first call opens it, and a call after the connection's end
// opens the next.
func Dial(target string, opts ...Option) (*ClientConn, error) {
	o := newOptions(opts)
	dial, b, err := dialer(target, &o)
	if err != nil {
		return nil, fmt.Errorf("fabric: dial %s: %w", target, err)
	}
	return newClientConn(target, newRedial(dial, b), o), nil
}

type dialFunc = func(context.Context) (*link, error)

// dialer returns the function that dials target, and the backoff after failures.
func dialer(target string, o *options) (dialFunc, backoff, error) {
	scheme, rest, _ := strings.Cut(target, ":")
	switch scheme {
	case "inproc":
		return dialInProcess(rest, o)
	case "unix":
		return dialShared(rest, o), onThisMachine(), nil
	case "node":
		return dialNode(nodeSocket(rest), o), onThisMachine(), nil
	case "grpc":
		return dialPlain(rest, o), elsewhere(), nil
	case "tcp":
		target = rest
	}
	if o.tls == nil {
		return nil, backoff{}, errNoTLS
	}
	return dialRemote(target, o), elsewhere(), nil
}

func dialInProcess(name string, o *options) (dialFunc, backoff, error) {
	if o.network == nil {
		return nil, backoff{}, errNoNetwork
	}
	return func(ctx context.Context) (*link, error) { return o.network.dial(ctx, name) }, onThisMachine(), nil
}

func dialShared(path string, o *options) dialFunc {
	return func(ctx context.Context) (*link, error) {
		c, err := shared.Dial(ctx, path, shared.Options{Logger: o.logger, MaxCalls: o.maxCalls, MaxMessage: o.transportLimit()})
		if err != nil {
			return nil, err
		}
		return &link{transport: c, peer: securePeer("unix:"+path, c.Peer().String()), done: c.Draining()}, nil
	}
}

// dialNode returns a function that dials a node, whose process may hand over to another.
func dialNode(path string, o *options) dialFunc {
	dial := dialShared(path, o)
	return func(ctx context.Context) (*link, error) {
		l, err := dial(ctx)
		if err == nil {
			l.movable = true
		}
		return l, err
	}
}

func dialRemote(addr string, o *options) dialFunc {
	return func(ctx context.Context) (*link, error) {
		c, err := remote.Dial(ctx, addr, o.tls, remote.Options{Logger: o.logger, Framed: framed.Options{MaxStreams: o.maxCalls}, MaxMessage: o.transportLimit()})
		if err != nil {
			return nil, err
		}
		return &link{transport: c, peer: securePeer(addr, addr), done: c.Draining()}, nil
	}
}

// dialPlain returns a function that leaves connecting and its failures to grpc-go.
func dialPlain(addr string, o *options) dialFunc {
	return func(context.Context) (*link, error) {
		t, err := plain.Dial(addr, plain.Options{Logger: o.logger, TLS: o.tls, MaxMessage: o.transportLimit()})
		if err != nil {
			return nil, err
		}
		if o.tls == nil {
			return &link{transport: t, peer: &peer.Peer{Addr: address(addr)}}, nil
		}
		return &link{transport: t, peer: securePeer(addr, addr)}, nil
	}
}

// securePeer returns a peer on a connection with privacy and integrity.
func securePeer(addr, name string) *peer.Peer {
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return &peer.Peer{Addr: address(addr), AuthInfo: Caller{CommonAuthInfo: level, Peer: name}}
}
