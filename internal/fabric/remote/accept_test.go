package remote

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

// shortOfDescriptors is a listener that fails some times before it accepts.
type shortOfDescriptors struct {
	net.Listener
	failures atomic.Int32
}

func (l *shortOfDescriptors) Accept() (net.Conn, error) {
	if l.failures.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// A process that runs out of descriptors serves again once it has some, and says when its listener
// is closed.
func TestServeGoesOnAfterAShortage(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &shortOfDescriptors{Listener: inner}
	l.failures.Store(3)
	served := make(chan error, 1)
	go func() { served <- Serve(t.Context(), l, nil, Options{Handler: &unaryEcho{}}) }()
	nc, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := New(framed.Client(nc, framed.Options{}), Options{})
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m, _, err := c.Unary(ctx, head("Echo"), &call.Message{Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	m.Free()
	_ = inner.Close()
	select {
	case err := <-served:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("a closed listener is served for ever")
	}
}

// Attack: an address opens connections on which it sends nothing. It has half of them at most, and
// others are served.
func TestConnectionsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := Options{Handler: &unaryEcho{}, MaxConns: 8, Framed: framed.Options{DeadAfter: time.Hour}}
	go func() { _ = Serve(t.Context(), l, nil, o) }()
	attacker := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	refused := make(chan error, 16)
	for range cap(refused) {
		nc, err := attacker.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nc.Close() })
		go func() {
			_, err := io.Copy(io.Discard, nc)
			refused <- err
		}()
	}
	for range cap(refused) - 4 {
		select {
		case <-refused:
		case <-time.After(time.Minute):
			t.Fatal("more than half of the connections are open")
		}
	}
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c := New(framed.Client(nc, framed.Options{}), Options{})
	defer c.Close()
	m, _, err := c.Unary(t.Context(), head("Echo"), &call.Message{Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	m.Free()
}
