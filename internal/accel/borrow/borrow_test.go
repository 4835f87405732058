package borrow

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// pipeLink is a session without a worker.
type pipeLink struct {
	file   *os.File
	done   chan struct{}
	err    error
	closed chan struct{}
}

func newPipeLink(t *testing.T) *pipeLink {
	t.Helper()
	file, err := shm.NewFile(shm.MinArea)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return &pipeLink{file: file, done: make(chan struct{}), closed: make(chan struct{})}
}

func (l *pipeLink) File() *os.File        { return l.file }
func (l *pipeLink) Done() <-chan struct{} { return l.done }
func (l *pipeLink) Err() error            { return l.err }
func (l *pipeLink) Close() error          { close(l.closed); return nil }

// serve opens a server whose only lease gives link, or err.
func serve(t *testing.T, link Link, err error) (*Server, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	s, openErr := Open(t.Context(), Options{
		Socket: socket, DeadAfter: 1500 * time.Millisecond,
		Leases: []Lease{{Memory: 1 << 20, Dial: func(context.Context) (Link, error) { return link, err }}},
	})
	if openErr != nil {
		t.Fatal(openErr)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s, socket
}

// greet connects with a hello that may be wrong.
func greet(t *testing.T, socket string, hello []byte) (*Session, *net.UnixConn, error) {
	t.Helper()
	conn, err := unixsock.Dial(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	s, err := connect(conn, hello)
	return s, conn, err
}

func helloFor(lease uint32) []byte { return hello{PID: 42, Lease: lease}.marshal() }

func TestServerGivesARing(t *testing.T) {
	link := newPipeLink(t)
	_, socket := serve(t, link, nil)
	session, err := Connect(t.Context(), socket, 0)
	if err != nil {
		t.Fatal(err)
	}
	if session.Leases != 1 || session.Memory != 1<<20 {
		t.Errorf("got %d leases, %v of memory, want 1 and 1MiB", session.Leases, session.Memory)
	}
	// The process dies: its session ends.
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	<-link.closed
}

func TestServerRefuses(t *testing.T) {
	broken := helloFor(0)
	broken[31] = 1
	denied := outboard.Errorf(outboard.Denied, "lease x", "it expired")
	tests := map[string]struct {
		hello []byte
		err   error
		kind  outboard.Kind
		text  string
		lost  bool
	}{
		"lease out of range": {helloFor(1), nil, outboard.Invalid, "hello: lease 1 of 1", false},
		"reserved bytes":     {broken, nil, outboard.Protocol, "hello: reserved bytes are set", false},
		"magic":              {make([]byte, helloSize), nil, outboard.Protocol, "magic", false},
		"no session":         {helloFor(0), denied, outboard.Denied, "lease x: it expired", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s, socket := serve(t, nil, test.err)
			_, conn, err := greet(t, socket, test.hello)
			if outboard.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v of kind %v, want %q of kind %v", err, outboard.KindOf(err), test.text, test.kind)
			}
			if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("got %v, want the server to hang up", err)
			}
			if test.lost {
				<-s.Lost()
				if !errors.Is(s.Loss(), test.err) {
					t.Errorf("got loss %v, want %v", s.Loss(), test.err)
				}
			}
		})
	}
}

func TestServerTellsOfLosses(t *testing.T) {
	link := newPipeLink(t)
	s, socket := serve(t, link, nil)
	session, conn, err := greet(t, socket, helloFor(0))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	link.err = outboard.Errorf(outboard.SessionLost, "session", "the worker crashed")
	close(link.done)
	<-s.Lost()
	if !errors.Is(s.Loss(), link.err) {
		t.Errorf("got %v, want %v", s.Loss(), link.err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, want the process's socket closed", err)
	}
	<-link.closed
}

func TestServerCloseEndsSessions(t *testing.T) {
	link := newPipeLink(t)
	s, socket := serve(t, link, nil)
	session, conn, err := greet(t, socket, helloFor(0))
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-link.closed:
	default:
		t.Error("the session lives on")
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives on")
	}
	select {
	case <-s.Lost():
		t.Errorf("got loss %v, want none: it was our own end", s.Loss())
	default:
	}
}

// node plays the node's side of a local session.
func node(t *testing.T, play func(conn *ipc.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "node")
	l, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		socket, err := l.AcceptUnix()
		if err != nil {
			return
		}
		conn := ipc.New(socket, LocalOptions)
		defer conn.Close()
		if m, err := conn.Receive(context.Background()); err != nil || m.Type != TypeOpen {
			t.Errorf("got %v, %v, want a request", m, err)
		}
		play(conn)
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return path
}

func TestLocal(t *testing.T) {
	tests := map[string]struct {
		last *ipc.Reason // in the node's last message, nil for none
		kind outboard.Kind
		text string
	}{
		"clean end":   {&ipc.Reason{}, outboard.Other, ""},
		"crash":       {&ipc.Reason{Kind: outboard.SessionLost, Error: "the worker crashed"}, outboard.SessionLost, "the worker crashed"},
		"node killed": {nil, outboard.SessionLost, "session: the node on this machine ended: EOF"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			file, err := shm.NewFile(shm.MinArea)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = file.Close() })
			path := node(t, func(conn *ipc.Conn) {
				_ = conn.Send(TypeOpened, LocalSession{Session: "s"}, file)
				if test.last != nil {
					_ = conn.Send(TypeEnded, test.last)
				}
			})
			link, err := Local(t.Context(), path, []byte("claim"))
			if err != nil {
				t.Fatal(err)
			}
			dup, err := dup(link.File())
			if err != nil {
				t.Fatal(err)
			}
			ring, err := shm.Open(dup, shm.Client)
			if err != nil {
				t.Fatal(err)
			}
			defer ring.Unmap()
			<-link.Done()
			switch err := link.Err(); {
			case test.text == "" && err != nil:
				t.Errorf("got %v, want a clean end", err)
			case test.text != "":
				if err == nil || err.Error() != test.text || outboard.KindOf(err) != test.kind {
					t.Errorf("got %v, want %q", err, test.text)
				}
				// The program learns of it by the ring.
				if _, err := ring.Next(1); outboard.KindOf(err) != test.kind {
					t.Errorf("ring: got %v, want kind %v", err, test.kind)
				}
			}
			if err := link.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestLocalRefused(t *testing.T) {
	path := node(t, func(conn *ipc.Conn) {
		_ = conn.Send(TypeEnded, ipc.ReasonOf(outboard.Errorf(outboard.Denied, "", "the claim expired")))
	})
	_, err := Local(t.Context(), path, []byte("claim"))
	if outboard.KindOf(err) != outboard.Denied || err.Error() != "the claim expired" {
		t.Errorf("got %v, want the node's refusal", err)
	}
}

// A node that ends a session before it has begun, or sends no ring, opens none.
func TestLocalWithoutRing(t *testing.T) {
	for name, answer := range map[string]string{"ended": TypeEnded, "no ring": TypeOpened, "unknown": "later"} {
		t.Run(name, func(t *testing.T) {
			path := node(t, func(conn *ipc.Conn) { _ = conn.Send(answer, nil) })
			if link, err := Local(t.Context(), path, nil); outboard.KindOf(err) != outboard.Protocol {
				t.Errorf("got %v, %v", link, err)
			}
		})
	}
}

// A node of a release whose socket is a stream gets named.
func TestLocalOfAnotherRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := unixsock.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Local(t.Context(), path, nil); outboard.KindOf(err) != outboard.Protocol || !strings.Contains(err.Error(), "release") {
		t.Errorf("got %v", err)
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(helloFor(0))
	f.Add(helloFor(3))
	f.Add(welcome{Leases: 2, Memory: 1 << 30, DeadAfter: time.Second}.marshal())
	f.Add(welcome{Err: outboard.Errorf(outboard.Denied, "", "no")}.marshal())
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHello(b); err == nil {
			if diff := cmp.Diff(b, h.marshal()); diff != "" {
				t.Errorf("a hello has bytes that mean nothing (-sent +understood):\n%s", diff)
			}
		}
		if _, _, size, err := parseWelcome(b); err == nil && size > maxText {
			t.Errorf("text of %d bytes was accepted", size)
		}
	})
}
