package shared

import (
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Drain does not wait for a peer that has stopped and left its socket full. The peer gets the request
// when it goes on.
func TestDrainOfStoppedPeer(t *testing.T) {
	c, _, peer := against(t, acceptor, Options{Handler: parrot{}})
	raw, err := c.socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	full := false
	for !full {
		_ = raw.Control(func(fd uintptr) {
			full = errors.Is(unix.Sendto(int(fd), []byte{byteRing}, unix.MSG_DONTWAIT, nil), unix.EAGAIN)
		})
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		c.Drain()
	}()
	select {
	case <-drained:
	case <-time.After(time.Minute):
		t.Error("Drain waits for the peer")
	}
	for word := make([]byte, 1); word[0] != byteDrain; {
		if _, err := peer.Read(word); err != nil {
			t.Fatal(err)
		}
	}
	<-drained
}
