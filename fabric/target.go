package fabric

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/outboard-run/outboard/fabric/remote"
)

var errNoTLS = errors.New("a target over TCP needs WithTLS")

// localWait is how long after a failure a target in this machine is tried again.
const localWait = 10 * time.Millisecond

// Dial makes calls to target:
//
//	inproc:NAME     a server in this process, see [WithNetwork]
//	unix:PATH       a server on this machine, over shared memory
//	tcp:HOST:PORT   a server elsewhere, over TCP with TLS, see [WithTLS]
//	HOST:PORT       the same
//	grpc:HOST:PORT  a plain gRPC server; with TLS where WithTLS is given
//
// It does not wait for a connection: the first call makes it.
func Dial(target string, opts ...Option) (*ClientConn, error) {
	o := newOptions(opts)
	dial, wait, err := dialer(target, &o)
	if err != nil {
		return nil, fmt.Errorf("fabric: dial %s: %w", target, err)
	}
	return newClientConn(target, newRedial(dial, wait), o), nil
}

// dialer is how target is dialled, and the first wait after a failure.
func dialer(target string, o *options) (func(context.Context) (*Link, error), time.Duration, error) {
	scheme, rest, _ := strings.Cut(target, ":")
	switch {
	case o.dialer != nil:
		return o.dialer, firstWait, nil
	case scheme == "inproc":
		return dialInProcess(rest, o)
	case scheme == "tcp":
		return dialRemote(rest, o)
	}
	return dialRemote(target, o)
}

func dialInProcess(name string, o *options) (func(context.Context) (*Link, error), time.Duration, error) {
	if o.network == nil {
		return nil, 0, errors.New("a target in this process needs WithNetwork")
	}
	return func(ctx context.Context) (*Link, error) { return o.network.dial(ctx, name) }, localWait, nil
}

func dialRemote(addr string, o *options) (func(context.Context) (*Link, error), time.Duration, error) {
	if o.tls == nil {
		return nil, 0, errNoTLS
	}
	return func(ctx context.Context) (*Link, error) {
		c, err := remote.Dial(ctx, addr, o.tls, remote.Options{Logger: o.logger})
		if err != nil {
			return nil, err
		}
		return &Link{Transport: c, Peer: &peer.Peer{Addr: address(addr)}, Done: c.Draining()}, nil
	}, firstWait, nil
}
