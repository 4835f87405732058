package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"time"
)

// peek reads the first message of a TLS handshake and returns the application protocols that the
// client offers, and the bytes that were read, with which the handshake can begin again.
func peek(ctx context.Context, nc net.Conn) (offered []string, read []byte, err error) {
	stop := errors.New("the hello was read")
	record := &recorder{Conn: nc}
	// This server refuses every hello; the refusal is not sent.
	hello := tls.Server(record, &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			offered = info.SupportedProtos
			return nil, stop
		},
	})
	_ = nc.SetReadDeadline(time.Now().Add(requestLimit))
	err = hello.HandshakeContext(ctx)
	if !errors.Is(err, stop) {
		return nil, nil, err
	}
	_ = nc.SetReadDeadline(time.Time{})
	return offered, record.read, nil
}

// A recorder records the bytes read and drops the bytes written.
type recorder struct {
	net.Conn
	read []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.read = append(r.read, b[:n]...)
	return n, err
}

func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// Close does nothing: the connection is still used without the recorder.
func (r *recorder) Close() error { return nil }
