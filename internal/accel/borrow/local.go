package borrow

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// MaxLine bounds a line of the exchange with a node's session socket.
const MaxLine = 64 << 10

// LocalRequest is the first line on a node's session socket.
type LocalRequest struct {
	// Sessions is the version of what a session's bytes mean.
	Sessions int    `json:"sessions"`
	Claim    []byte `json:"claim"`
}

// LocalEvent is a line of the node's answer. The first one says whether there
// is a session, and the ring's memory comes with its first byte; a second one
// says how the session ended.
type LocalEvent struct {
	Session outboard.SessionID `json:"session,omitempty"`
	Ended   bool               `json:"ended,omitempty"`
	Kind    outboard.Kind      `json:"kind,omitempty"`
	// Error is why there is no session, or why it ended.
	Error string `json:"error,omitempty"`
}

// EventOf is the event for the end of a session, or for its refusal.
func EventOf(err error) LocalEvent {
	e := LocalEvent{Ended: true}
	if err != nil {
		e.Kind, e.Error = outboard.KindOf(err), err.Error()
	}
	return e
}

func (e LocalEvent) err() error {
	if e.Error == "" {
		return nil
	}
	return outboard.Errorf(e.Kind, "", "%s", e.Error)
}

// local is a session with a worker on this machine: program and worker share
// the ring, and the node's socket only tells of death.
type local struct {
	conn *net.UnixConn
	file *os.File
	done chan struct{}

	mu     sync.Mutex
	closed bool
	err    error
}

// Local opens a session on a device of this machine's node, whose session
// socket is at path.
func Local(ctx context.Context, path string, claim []byte) (Link, error) {
	conn, err := unixsock.Dial(ctx, path)
	if err != nil {
		return nil, &outboard.Error{Op: "open a session", Kind: outboard.SessionLost, Err: err}
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	l := &local{conn: conn, done: make(chan struct{})}
	lines, err := l.open(claim)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	go l.waitForEnd(lines)
	return l, nil
}

// open sends the request and reads the first event.
func (l *local) open(claim []byte) (*bufio.Reader, error) {
	const op = "open a session"
	text, err := json.Marshal(LocalRequest{Sessions: Sessions, Claim: claim})
	if err != nil {
		return nil, err
	}
	if _, err := l.conn.Write(append(text, '\n')); err != nil {
		return nil, &outboard.Error{Op: op, Kind: outboard.SessionLost, Err: err}
	}
	first := make([]byte, 1)
	if l.file, err = unixsock.Receive(l.conn, first); err != nil {
		return nil, &outboard.Error{Op: op, Kind: outboard.SessionLost, Err: err}
	}
	lines := bufio.NewReaderSize(io.MultiReader(bytes.NewReader(first), l.conn), MaxLine)
	event, err := readEvent(lines)
	if err == nil {
		err = event.err()
	}
	if err == nil && l.file == nil {
		err = outboard.Errorf(outboard.Protocol, op, "the node sent no ring")
	}
	if err != nil && l.file != nil {
		_ = l.file.Close()
	}
	return lines, err
}

func readEvent(lines *bufio.Reader) (LocalEvent, error) {
	var event LocalEvent
	text, err := lines.ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(text, &event)
	}
	if err != nil {
		return event, outboard.Errorf(outboard.SessionLost, "session", "the node on this machine ended: %w", err)
	}
	return event, nil
}

// waitForEnd reads the event that says how the session ended.
func (l *local) waitForEnd(lines *bufio.Reader) {
	defer close(l.done)
	event, err := readEvent(lines)
	if err == nil {
		err = event.err()
	}
	l.mu.Lock()
	if !l.closed {
		l.err = err
	}
	err = l.err
	l.mu.Unlock()
	if err != nil {
		// The node closed the ring as well, unless it died.
		failRing(l.file, err)
	}
}

// failRing closes a ring that this process has not mapped.
func failRing(file *os.File, err error) {
	withMappedRing(file, func(ring *shm.Ring) { _ = ring.Fail(err) })
}

// failed reports whether a ring was closed for a reason.
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
