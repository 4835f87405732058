package freeport

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Reservation holds a port of the loopback for listeners that come and go, as those of a server that
// a test restarts. Between two listeners the kernel gives the port to no socket that names none, and
// refuses connections to it.
//
// It is a socket that is bound and does not listen. Listeners of Go's package net have SO_REUSEADDR, as
// it has, so they may be bound beside it, by any process.
type Reservation struct {
	socket *os.File
	port   int
}

// Reserve reserves a port that the kernel chooses. Close releases it.
func Reserve() (*Reservation, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a TCP port: %w", os.NewSyscallError("socket", err))
	}
	r := &Reservation{socket: os.NewFile(uintptr(fd), "reserved port")}
	if r.port, err = bindReusable(fd); err != nil {
		_ = r.Close()
		return nil, fmt.Errorf("reserve a TCP port: %w", err)
	}
	return r, nil
}

// bindReusable binds a socket to a port that the kernel chooses, and returns the port.
func bindReusable(fd int) (int, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	bound, err := unix.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	return bound.(*unix.SockaddrInet4).Port, nil //nolint:errcheck,forcetypeassert // of the socket's family
}

// Addr returns the reserved address, host and port.
func (r *Reservation) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)) }

// Close releases the port. A listener that is bound to it keeps it.
func (r *Reservation) Close() error { return r.socket.Close() }
