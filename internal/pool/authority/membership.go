package authority

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
)

// A membership is whether this node still belongs to its pool, as far as it can see.
type membership struct {
	removed atomic.Bool // the pool's table says so
	refused atomic.Bool // the last node to which it connected refused its certificate
}

var (
	// ErrRemoved is a node's error after it was removed from its pool.
	ErrRemoved = denied("this node was removed from the pool: empty its data directory and join it anew with a token")
	errRefused = denied("other nodes refuse this node's certificate: it was removed from the pool, or was away for longer than `outboard nodes remove --away` allowed (empty its data directory and join it anew with a token), or the clocks differ by minutes")
)

// MarkRemoved records that the pool has removed the node of an identity.
func MarkRemoved(id *Identity) { id.membership.removed.Store(true) }

// IsRemoved reports whether this node knows that the pool has removed the node of an identity.
func IsRemoved(id *Identity) bool { return id.membership.removed.Load() }

// CheckMembership returns why the node of an identity does not belong to its pool any more, or nil.
func CheckMembership(id *Identity) error {
	switch {
	case id.membership.removed.Load():
		return ErrRemoved
	case id.membership.refused.Load():
		return errRefused
	}
	return nil
}

// ObserveRefusal returns a connection of an identity's node to another one that records whether that
// refuses the node's certificate, and logs the first refusal: a node that starts does not end, but
// waits for the pool. With TLS 1.3 the refusal comes after the client's handshake, from Read.
func ObserveRefusal(id *Identity, conn net.Conn, log *slog.Logger) net.Conn {
	return &observedConn{conn, &id.membership, log}
}

type observedConn struct {
	net.Conn
	membership *membership
	log        *slog.Logger
}

// Read implements net.Conn.
func (c *observedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	switch {
	case n > 0:
		c.membership.refused.Store(false)
	case refusesCertificate(err):
		if !c.membership.refused.Swap(true) && !c.membership.removed.Load() {
			c.log.Error("this node has no access to the pool", "error", errRefused)
		}
	}
	return n, err
}

// refusesCertificate reports whether an error of crypto/tls is the peer's alert about this side's
// certificate (RFC 8446, section 6.2); its type is not exported.
func refusesCertificate(err error) bool {
	var remote *net.OpError
	return errors.As(err, &remote) && remote.Op == "remote error" && strings.Contains(remote.Err.Error(), "certificate")
}
