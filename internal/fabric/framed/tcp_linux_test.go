package framed

import (
	"context"
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Both ends of a connection retransmit each second at least, however long the network has been cut.
func TestRetransmissionIsBounded(t *testing.T) {
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled, err := new(net.Dialer).DialContext(context.Background(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer dialled.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer accepted.Close()
	for _, nc := range []net.Conn{dialled, accepted} {
		newSocket(nc, false, noObserver{})
		if got, err := longestRetransmission(nc.(*net.TCPConn)); errors.Is(err, unix.ENOPROTOOPT) {
			t.Skip("Linux 6.15 has the option")
		} else if err != nil || got != maxRetransmission {
			t.Errorf("longest time between retransmissions: got %d ms, %v, want %d", got, err, maxRetransmission)
		}
	}
}

func longestRetransmission(nc *net.TCPConn) (ms int, err error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Control(func(fd uintptr) {
		ms, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS)
	})
	return ms, errors.Join(failed, err)
}
