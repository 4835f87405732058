package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Listen creates a SOCK_SEQPACKET socket at path to which only its owner may connect.
func Listen(path string) (*net.UnixListener, error) { return unixsock.ListenPacket(path) }

// Dial connects to a socket that Listen created.
func Dial(ctx context.Context, path string, opts Options) (*Conn, error) {
	socket, err := unixsock.DialPacket(ctx, path)
	if err != nil {
		return nil, err
	}
	return New(socket, opts), nil
}

// Pair returns the two ends of a connection: a Conn, and a file for another process, which the
// caller closes once the process has it.
func Pair(opts Options) (*Conn, *os.File, error) {
	near, far, err := socketPair(unix.SOCK_SEQPACKET)
	if err != nil {
		return nil, nil, err
	}
	c, err := FromFile(near, opts)
	if err != nil {
		return nil, nil, errors.Join(err, far.Close())
	}
	return c, far, nil
}

// ConnPair returns the two ends of a connection within this process.
func ConnPair(a, b Options) (*Conn, *Conn, error) {
	near, file, err := Pair(a)
	if err != nil {
		return nil, nil, err
	}
	far, err := FromFile(file, b)
	if err != nil {
		return nil, nil, errors.Join(err, near.Close())
	}
	return near, far, nil
}

// StreamPair returns the two ends of a byte stream (SOCK_STREAM), to be passed to other processes.
func StreamPair() (a, b *os.File, err error) { return socketPair(unix.SOCK_STREAM) }

func socketPair(kind int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair"), nil
}

// errNoFile is the error of a message without the file that its type requires.
var errNoFile = outboard.Errorf(outboard.Protocol, "local protocol", "no file came along")

// NetConn returns a network connection on a file that was received in a message, and closes the
// file.
func NetConn(f *os.File) (net.Conn, error) {
	if f == nil {
		return nil, errNoFile
	}
	defer f.Close()
	return net.FileConn(f)
}

// OpenStream passes the far end of a new byte stream in a message of the given type and returns the
// near end.
func (c *Conn) OpenStream(kind string, body any) (net.Conn, error) {
	near, far, err := StreamPair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	if err := c.Send(kind, body, far); err != nil {
		return nil, errors.Join(err, near.Close())
	}
	return NetConn(near)
}
