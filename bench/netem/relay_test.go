package netem

import (
	"bytes"
	"context"
	"io"
	"net"
	"testing"
	"time"
)

// serveOnce accepts one connection and calls serve with it.
func serveOnce(t *testing.T, serve func(net.Conn)) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		serve(c)
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return l.Addr().String()
}

func relayTo(t *testing.T, addr string, link Link) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := StartRelay(t.Context(), Options{Listener: l, Link: link, Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}})
	t.Cleanup(func() { r.Close() })
	return r
}

// TestRelay: bytes arrive unchanged and late, the end of each direction is passed on, and
// nothing that was sent before an end is lost.
func TestRelay(t *testing.T) {
	want := make([]byte, 3<<20)
	for i := range want {
		want[i] = byte(i * i >> 7)
	}
	addr := serveOnce(t, func(c net.Conn) {
		got, err := io.ReadAll(c) // needs the client's half-close
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("the server read %d bytes, %v", len(got), err)
		}
		c.Write(got)
	})
	r := relayTo(t, addr, Link{})
	r.SetLink(Link{RTT: 10 * time.Millisecond})
	start := time.Now()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		c.Write(want)
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the client read %d bytes, %v", len(got), err)
	}
	if took := time.Since(start); took < 10*time.Millisecond {
		t.Errorf("there and back in %v", took)
	}
}

// TestRelayEnds: a connection ends at one end when the other one resets it, and all of them
// with the relay.
func TestRelayEnds(t *testing.T) {
	addr := serveOnce(t, func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) })
	c, err := net.Dial("tcp", relayTo(t, addr, Link{}).Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes after the server's reset", n)
	}
	gone := make(chan struct{})
	addr = serveOnce(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c); close(gone) })
	r := relayTo(t, addr, Link{RTT: time.Hour})
	far, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if _, err := far.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	r.Close()
	if n, err := far.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes after the relay's end", n)
	}
}

// A path that is cut carries nothing, and delivers after its repair what was sent.
func TestRelayCut(t *testing.T) {
	addr := serveOnce(t, func(c net.Conn) { _, _ = io.Copy(c, c) })
	r := relayTo(t, addr, Link{})
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func() error {
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	if _, err := c.Write([]byte{1}); err != nil || echo() != nil {
		t.Fatal("no echo before the cut")
	}
	before, _ := r.Bytes()
	r.Cut(true)
	r.Cut(true)
	if _, err := c.Write([]byte{2}); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := echo(); err == nil {
		t.Error("an echo through a path that is cut")
	}
	if up, _ := r.Bytes(); up != before {
		t.Errorf("%d bytes passed", up-before)
	}
	r.Cut(false)
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := echo(); err != nil {
		t.Errorf("after the repair: %v", err)
	}
}

// Late counts from when a delivery was due, in each direction for itself.
func TestRelayCountsLateDeliveries(t *testing.T) {
	var r Relay
	r.lateUp.add(10 * time.Microsecond)
	r.lateUp.add(30 * time.Microsecond)
	r.lateDown.add(-time.Microsecond) // the clock was read before
	up, down := r.Late()
	if up.Mean() != 20*time.Microsecond || down.Mean() != 0 {
		t.Errorf("late by %v and %v", up, down)
	}
	r.lateUp.add(50 * time.Microsecond)
	if later, _ := r.Late(); later.Since(up) != (Lateness{1, 50 * time.Microsecond}) {
		t.Errorf("after %v late by %v", up, later)
	}
}
