package datagram

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
)

// open returns the two ends of a path on the loopback device.
func open(t testing.TB) (a, b *Path) {
	t.Helper()
	near, far := net.Pipe()
	loopback := netip.MustParseAddr("127.0.0.1")
	opened := make(chan error, 1)
	go func() {
		var err error
		b, err = Open(context.Background(), far, loopback, loopback)
		opened <- err
	}()
	a, err := Open(context.Background(), near, loopback, loopback)
	if err := errors.Join(err, <-opened); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a, b
}

func TestDatagramsGoBothWays(t *testing.T) {
	a, b := open(t)
	for _, way := range []struct{ from, to *Path }{{a, b}, {b, a}} {
		for _, payload := range [][]byte{[]byte("gradients"), {}, bytes.Repeat([]byte{7}, MaxPayload)} {
			if err := way.from.Send(payload); err != nil {
				t.Fatal(err)
			}
			buf := make([]byte, MaxPayload)
			if n, err := way.to.Receive(buf); err != nil || !bytes.Equal(buf[:n], payload) {
				t.Errorf("got %d bytes, %v: want %d", n, err, len(payload))
			}
		}
	}
	if err := a.Send(make([]byte, MaxPayload+1)); err == nil {
		t.Error("a payload that is too large was sent")
	}
}

// What others send to the port, and changed datagrams, are ignored; datagrams are not readable.
func TestForeignPacketsAreIgnored(t *testing.T) {
	a, b := open(t)
	packets := make([]byte, 1<<16)
	eavesdropper, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	defer eavesdropper.Close()
	to := a.to
	a.to = eavesdropper.LocalAddr().(*net.UDPAddr).AddrPort()
	if err := a.Send([]byte("secret gradients")); err != nil {
		t.Fatal(err)
	}
	n, _, err := eavesdropper.ReadFromUDP(packets)
	if err != nil {
		t.Fatal(err)
	}
	packet := packets[:n]
	if strings.Contains(string(packet), "gradients") {
		t.Error("the payload is readable")
	}
	for i := range packet {
		changed := bytes.Clone(packet)
		changed[i] ^= 1
		for _, p := range [][]byte{changed, changed[:i]} {
			if _, err := eavesdropper.WriteToUDPAddrPort(p, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.to = to
	if err := a.Send([]byte("real")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, MaxPayload)
	if n, err := b.Receive(buf); err != nil || string(buf[:n]) != "real" {
		t.Errorf("received %q, %v", buf[:n], err)
	}
}

func TestCloseEndsReceive(t *testing.T) {
	a, _ := open(t)
	ended := make(chan error, 1)
	go func() {
		_, err := a.Receive(make([]byte, MaxPayload))
		ended <- err
	}()
	_ = a.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("got %v", err)
	}
}

func FuzzOpen(f *testing.F) {
	a, _ := open(f)
	f.Add([]byte{})
	f.Add(make([]byte, numberSize+tagSize))
	f.Add(make([]byte, MaxPayload+numberSize+tagSize+1))
	buf := make([]byte, MaxPayload)
	f.Fuzz(func(t *testing.T, packet []byte) {
		if payload, err := a.open(packet, buf); err == nil {
			t.Errorf("%x was opened as %x", packet, payload)
		}
	})
}
