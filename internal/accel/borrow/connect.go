package borrow

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Session is a process's end of a session.
type Session struct {
	Ring *shm.Ring
	// Leases is the number of the program's leases, Memory the limit of this session's allocations.
	Leases int
	Memory outboard.Bytes

	conn    *net.UnixConn
	watched chan struct{}
}

// Connect opens a session as the driver library does. It is for Go programs that exchange messages
// with workers themselves, mainly tests.
func Connect(ctx context.Context, socket string, lease int) (*Session, error) {
	conn, err := unixsock.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	s, err := connect(conn, hello{PID: uint32(os.Getpid()), Lease: uint32(lease)}.marshal())
	if err != nil {
		_ = conn.Close()
	}
	return s, err
}

func connect(conn *net.UnixConn, hello []byte) (*Session, error) {
	if _, err := conn.Write(hello); err != nil {
		return nil, err
	}
	first := make([]byte, welcomeSize)
	file, err := unixsock.Receive(conn, first)
	if err != nil {
		return nil, err
	}
	w, err := readWelcome(conn, first)
	if err == nil && file == nil {
		err = outboard.Errorf(outboard.Protocol, "welcome", "no ring came with it")
	}
	if err != nil {
		if file != nil {
			_ = file.Close()
		}
		return nil, err
	}
	ring, err := shm.Open(file, shm.Client)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	s := &Session{Ring: ring, Leases: w.Leases, Memory: w.Memory, conn: conn, watched: make(chan struct{})}
	go s.watch()
	return s, nil
}

// watch ends the session when the other end of the socket closes: then no process is left to close
// the ring.
func (s *Session) watch() {
	defer close(s.watched)
	_, _ = s.conn.Read(make([]byte, 1))
	_ = s.Ring.Close(1 + shm.Reason(outboard.SessionLost))
}

// readWelcome decodes a welcome whose fixed part has been read. It returns a refusal as an error.
func readWelcome(conn io.Reader, first []byte) (welcome, error) {
	w, kind, size, err := parseWelcome(first)
	if err != nil {
		return w, outboard.Errorf(outboard.Protocol, "welcome", "%w", err)
	}
	if binary.LittleEndian.Uint32(first) == 0 {
		return w, nil
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(conn, text); err != nil {
		return w, err
	}
	return w, outboard.Errorf(kind, "", "%s", text)
}

// Close ends the session.
func (s *Session) Close() error {
	_ = s.Ring.Close(shm.Done)
	err := s.conn.Close()
	<-s.watched
	s.Ring.Unmap()
	return err
}

func (h hello) marshal() []byte {
	b := make([]byte, helloSize)
	copy(b, helloMagic)
	binary.LittleEndian.PutUint32(b[8:], h.PID)
	binary.LittleEndian.PutUint32(b[12:], h.Lease)
	return b
}
