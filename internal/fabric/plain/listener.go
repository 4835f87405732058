package plain

import (
	"context"
	"crypto/tls"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// connListener is a listener whose connections are passed to it by offer.
type connListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newOffers() *connListener {
	return &connListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// offer waits until the server accepts nc, or closes nc if the listener is closed.
func (l *connListener) offer(nc net.Conn) error {
	select {
	case l.conns <- nc:
		return nil
	case <-l.closed:
		_ = nc.Close()
		return net.ErrClosed
	}
}

// Accept implements net.Listener.
func (l *connListener) Accept() (net.Conn, error) {
	select {
	case nc := <-l.conns:
		return nc, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *connListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *connListener) Addr() net.Addr { return offered{} }

// offered is the address of a listener that has no address of its own.
type offered struct{}

// Network implements net.Addr.
func (offered) Network() string { return "offered" }

func (offered) String() string { return "offered" }

// handshakeCredentials are the credentials of a server that also accepts connections on which the TLS
// handshake is complete.
type handshakeCredentials struct {
	credentials.TransportCredentials
}

func newCredentials(t *tls.Config) credentials.TransportCredentials {
	if t == nil {
		return handshakeCredentials{insecure.NewCredentials()}
	}
	return handshakeCredentials{credentials.NewTLS(t)}
}

// ServerHandshake implements credentials.TransportCredentials.
func (a handshakeCredentials) ServerHandshake(nc net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := nc.(*tls.Conn)
	if !ok {
		return a.TransportCredentials.ServerHandshake(nc)
	}
	// grpc-go has set a deadline on the connection.
	if err := t.HandshakeContext(context.Background()); err != nil {
		return nil, nil, err
	}
	info := credentials.TLSInfo{
		State:          t.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	return t, info, nil
}

// Clone implements credentials.TransportCredentials.
func (a handshakeCredentials) Clone() credentials.TransportCredentials {
	return handshakeCredentials{a.TransportCredentials.Clone()}
}
