package borrow

import (
	"context"
	"errors"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/bridge"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/shm"
)

// Types of messages on a node's session socket. A connection is a session: it ends with the
// connection.
const (
	// TypeOpen is the first message to the node: a LocalRequest.
	TypeOpen = "open"
	// TypeOpened is the node's message that a session was opened: a LocalSession. The file is the
	// memory of its ring.
	TypeOpened = "opened"
	// TypeEnded is the node's last message: the ipc.Reason why no session was opened, or why it
	// ended.
	TypeEnded = "ended"
)

// LocalOptions configure both ends of a connection to a node's session socket.
var LocalOptions = ipc.Options{MaxBody: 16 << 10, MaxReceived: 32 << 10}

// LocalRequest requests a session.
type LocalRequest struct {
	// Sessions is the version of the format of a session's bytes.
	Sessions int    `json:"sessions"`
	Claim    []byte `json:"claim"`
}

// LocalSession is an opened session.
type LocalSession struct {
	Session outboard.SessionID `json:"session"`
}

// local is a session with a worker on this machine: program and worker share the ring, and the
// node's socket only reports the session's end.
type local struct {
	conn *ipc.Conn
	file *os.File
	done chan struct{}

	mu     sync.Mutex
	closed bool
	err    error
}

// Local opens a session on a device of this machine's node, whose session
// socket is at path.
func Local(ctx context.Context, path string, claim []byte) (Link, error) {
	const op = "open a session"
	conn, err := ipc.Dial(ctx, path, LocalOptions)
	if errors.Is(err, unix.EPROTOTYPE) {
		return nil, outboard.Errorf(outboard.Protocol, op, "the node on this machine runs another release than this program: start it again with this one")
	}
	if err != nil {
		return nil, &outboard.Error{Op: op, Kind: outboard.SessionLost, Err: err}
	}
	l := &local{conn: conn, done: make(chan struct{})}
	if l.file, err = open(ctx, conn, claim); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go l.waitForEnd()
	return l, nil
}

// open sends the request, and returns the ring's memory.
func open(ctx context.Context, conn *ipc.Conn, claim []byte) (*os.File, error) {
	if err := conn.Send(TypeOpen, LocalRequest{Sessions: bridge.Version, Claim: claim}); err != nil {
		return nil, &outboard.Error{Op: "open a session", Kind: outboard.SessionLost, Err: err}
	}
	m, err := receive(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	if err := errors.Join(m.Lost(), ended(m)); err != nil {
		return nil, err
	}
	file := m.File()
	if m.Type != TypeOpened || file == nil {
		return nil, outboard.Errorf(outboard.Protocol, "open a session", "the node sent no ring but a message of type %.40q", m.Type)
	}
	return file, nil
}

// receive waits for the node's next message.
func receive(ctx context.Context, conn *ipc.Conn) (*ipc.Message, error) {
	m, err := conn.Receive(ctx)
	if err != nil && ctx.Err() == nil {
		return nil, outboard.Errorf(outboard.SessionLost, "session", "the node on this machine ended: %w", err)
	}
	return m, err
}

// ended returns why a session ended, if the message reports its end with a reason.
func ended(m *ipc.Message) error {
	if m.Type != TypeEnded {
		return nil
	}
	var why ipc.Reason
	if err := m.Decode(&why); err != nil {
		return err
	}
	return why.Err()
}

// waitForEnd receives the reason of the session's end.
func (l *local) waitForEnd() {
	defer close(l.done)
	m, err := receive(context.Background(), l.conn)
	if err == nil {
		err = ended(m)
		m.Close()
	}
	l.mu.Lock()
	if !l.closed {
		l.err = err
	}
	err = l.err
	l.mu.Unlock()
	if err != nil {
		// The node has closed the ring as well, unless it crashed.
		failRing(l.file, err)
	}
}

// failRing closes a ring that this process has not mapped.
func failRing(file *os.File, err error) {
	withMappedRing(file, func(ring *shm.Ring) { _ = ring.Fail(err) })
}

// failed reports whether a ring was closed with an error.
func failed(file *os.File) (yes bool) {
	withMappedRing(file, func(ring *shm.Ring) {
		reason, closed := ring.Closed()
		yes = closed && reason != shm.Done
	})
	return yes
}

// withMappedRing maps a ring, calls f with it and unmaps it.
func withMappedRing(file *os.File, f func(*shm.Ring)) {
	dup, err := dup(file)
	if err != nil {
		return
	}
	ring, err := shm.Open(dup, shm.Worker)
	if err != nil {
		_ = dup.Close()
		return
	}
	defer ring.Unmap()
	f(ring)
}

func (l *local) File() *os.File        { return l.file }
func (l *local) Done() <-chan struct{} { return l.done }

func (l *local) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func (l *local) Close() error {
	l.mu.Lock()
	already := l.closed
	l.closed = true
	l.mu.Unlock()
	if already {
		<-l.done
		return nil
	}
	err := l.conn.Close()
	<-l.done
	return errors.Join(err, l.file.Close())
}
