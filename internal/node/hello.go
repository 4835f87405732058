package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"time"
)

// peek reads the first message of a TLS handshake and returns the application
// protocols that the client offers, and a connection on which the handshake can
// begin anew.
func peek(ctx context.Context, nc net.Conn) ([]string, *replay, error) {
	var offered []string
	stop := errors.New("seen")
	record := &recorder{Conn: nc}
	// A server that refuses every hello, and whose refusal goes nowhere.
	hello := tls.Server(record, &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			offered = info.SupportedProtos
			return nil, stop
		},
	})
	_ = nc.SetReadDeadline(time.Now().Add(requestLimit))
	err := hello.HandshakeContext(ctx)
	if !errors.Is(err, stop) {
		return nil, nil, err
	}
	_ = nc.SetReadDeadline(time.Time{})
	return offered, &replay{Conn: nc, Reader: io.MultiReader(bytes.NewReader(record.seen), nc), seen: record.seen}, nil
}

// recorder keeps what is read and drops what is written.
type recorder struct {
	net.Conn
	seen []byte
}

func (r *recorder) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.seen = append(r.seen, b[:n]...)
	return n, err
}

func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }

// Close does nothing: the connection goes on without the recorder.
func (r *recorder) Close() error { return nil }

// NetConn returns the connection below.
func (r *replay) NetConn() net.Conn { return r.Conn }

// replay reads what was seen once more before anything new.
type replay struct {
	net.Conn
	io.Reader
	seen []byte
}

func (r *replay) Read(b []byte) (int, error) { return r.Reader.Read(b) }
