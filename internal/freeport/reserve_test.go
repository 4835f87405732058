package freeport

import (
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Between the listeners of a reserved port connections are refused, and a socket that would share the
// port with none, as that of a connection, does not get it.
func TestReserve(t *testing.T) {
	r, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 3 {
		if c, err := net.Dial("tcp", r.Addr()); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("a connection without a listener: %v, %v", c, err)
		}
		if err := bindAlone(t, r.port); !errors.Is(err, unix.EADDRINUSE) {
			t.Errorf("another socket gets the port: %v", err)
		}
		serveOnce(t, r.Addr())
	}
}

// serveOnce listens at an address, and ends the one connection that it accepts before its peer does: the
// ended connection stays bound to the port.
func serveOnce(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
}

// bindAlone binds a socket without SO_REUSEADDR to a port of the loopback.
func bindAlone(t *testing.T, port int) error {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}})
}
