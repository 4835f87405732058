package ipc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

type body struct {
	Text string `json:"text,omitempty"`
	Data []byte `json:"data,omitempty"`
	N    int    `json:"n,omitempty"`
}

// pair returns two connected ends that are closed after the test.
func pair(t *testing.T, a, b Options) (*Conn, *Conn) {
	t.Helper()
	near, other, err := ConnPair(a, b)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = near.Close(), other.Close() })
	return near, other
}

// serve has both ends in Serve until the test ends; a's requests are refused.
func serve(t *testing.T, a, b *Conn, handle func(c *Conn, m *Message)) {
	t.Helper()
	var serving sync.WaitGroup
	serving.Go(func() { a.Serve(func(m *Message) { m.Close() }) })
	serving.Go(func() { b.Serve(func(m *Message) { handle(b, m) }) })
	t.Cleanup(func() {
		_, _ = a.Close(), b.Close()
		serving.Wait()
	})
}

// echo answers with the body and the files of the request.
func echo(c *Conn, m *Message) {
	defer m.Close()
	var in body
	err := m.Decode(&in)
	_ = c.Reply(m, &in, err, m.files...)
}

func TestCall(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	serve(t, a, b, echo)
	tests := map[string]body{
		"empty":            {},
		"text":             {Text: "a \"text\" \x00 with anything"},
		"as large as fits": {Data: bytes.Repeat([]byte{0xff}, MaxPacket/2)},
		"passed as a file": {Data: bytes.Repeat([]byte{0xfe}, 4*MaxPacket)},
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			file, err := NewFile("test", []byte("hello"))
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			reply, err := a.Call(t.Context(), "echo", &want, file)
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Close()
			var got body
			if err := reply.Decode(&got); err != nil || got.Text != want.Text || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("got %.100v, %v", got, err)
			}
			came := reply.File()
			if came == nil {
				t.Fatal("no file came along")
			}
			defer came.Close()
			if text, err := ReadFile(came, 100); string(text) != "hello" || err != nil {
				t.Errorf("the file has %q, %v", text, err)
			}
		})
	}
}

func TestCallsOfBothSides(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	var serving sync.WaitGroup
	for _, c := range []*Conn{a, b} {
		serving.Go(func() { c.Serve(func(m *Message) { echo(c, m) }) })
	}
	var calling sync.WaitGroup
	for i := range 50 {
		for _, c := range []*Conn{a, b} {
			calling.Go(func() {
				reply, err := c.Call(t.Context(), "echo", &body{N: i})
				var got body
				if err == nil {
					err = reply.Decode(&got)
				}
				if err != nil || got.N != i {
					t.Errorf("call %d: %+v, %v", i, got, err)
				}
			})
		}
	}
	calling.Wait()
	_, _ = a.Close(), b.Close()
	serving.Wait()
}

func TestErrorReply(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	serve(t, a, b, func(c *Conn, m *Message) {
		m.Close()
		_ = c.Reply(m, nil, outboard.Errorf(outboard.Denied, "test", "%s", strings.Repeat("\x00", 2*MaxPacket)))
	})
	_, err := a.Call(t.Context(), "x", nil)
	if outboard.KindOf(err) != outboard.Denied || !strings.HasPrefix(err.Error(), "test: ") {
		t.Errorf("got %.100v", err)
	}
}

// A reply that can't be sent says so to the caller, which would wait for ever.
func TestReplyTooLarge(t *testing.T) {
	a, b := pair(t, Options{}, Options{MaxBody: MaxPacket})
	serve(t, a, b, func(c *Conn, m *Message) {
		m.Close()
		_ = c.Reply(m, &body{Data: make([]byte, 2*MaxPacket)}, nil)
	})
	if _, err := a.Call(t.Context(), "x", nil); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("got %v", err)
	}
}

func TestEnds(t *testing.T) {
	arrived := make(chan *Message, 1)
	a, b := pair(t, Options{}, Options{})
	serve(t, a, b, func(_ *Conn, m *Message) { arrived <- m })
	failed := make(chan error, 1)
	go func() {
		_, err := a.Call(t.Context(), "x", nil)
		failed <- err
	}()
	<-arrived
	_ = b.Close()
	if err := <-failed; !errors.Is(err, ErrClosed) {
		t.Errorf("a call whose peer ended: %v", err)
	}
	<-a.Done()
	if _, err := a.Call(t.Context(), "x", nil); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("a call after the end: %v", err)
	}
}

func TestTimeout(t *testing.T) {
	arrived := make(chan *Message, 1)
	a, b := pair(t, Options{}, Options{})
	serve(t, a, b, func(_ *Conn, m *Message) { arrived <- m })
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	failed := make(chan error, 1)
	go func() {
		_, err := a.Call(ctx, "x", nil)
		failed <- err
	}()
	m := <-arrived
	if got := m.Timeout(2 * time.Hour); got > time.Hour || got < 59*time.Minute {
		t.Errorf("the receiver is told %v", got)
	}
	if got := m.Timeout(time.Minute); got != time.Minute {
		t.Errorf("the receiver's own limit of a minute became %v", got)
	}
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	_ = b.Reply(m, nil, nil) // too late: dropped
	go func() { _ = b.Reply(<-arrived, &body{N: 2}, nil) }()
	reply, err := a.Call(t.Context(), "x", nil)
	if err != nil || reply.ID == m.ID {
		t.Errorf("the next call: %v", err)
	}
}

func TestPendingRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(nil, Options{MaxPending: 1})
		if _, _, err := a.register(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Call(t.Context(), "x", nil); outboard.KindOf(err) != outboard.Exhausted {
			t.Errorf("got %v", err)
		}
	})
}

// A peer that does not read costs a sender its time-out, and not its life.
func TestPeerThatDoesNotRead(t *testing.T) {
	a, _ := pair(t, Options{WriteTimeout: 10 * time.Millisecond}, Options{})
	for range 1000 {
		if err := a.Send("x", &body{Data: make([]byte, 64<<10)}); err != nil {
			if outboard.KindOf(err) != outboard.Unreachable || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			return
		}
	}
	t.Error("1,000 messages found room")
}

// TestLateSender sends when the time for it is over: the socket has space, so the message is sent.
// Messages without a time-out wait for a peer that reads slowly, and end with the connection.
func TestSenderWithoutTimeout(t *testing.T) {
	a, b := pair(t, Options{WriteTimeout: -1}, Options{})
	const messages = 1000
	sent := make(chan error, 1)
	go func() {
		for range messages {
			if err := a.Send("text", &body{Data: make([]byte, 1000)}); err != nil {
				sent <- errors.Join(err, a.Close())
				return
			}
		}
		sent <- nil
	}()
	for range messages {
		if _, err := b.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	go func() {
		for a.Send("text", &body{Data: make([]byte, 1000)}) == nil { // until the peer has gone
		}
		sent <- nil
	}()
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	<-sent
}

func TestLateSender(t *testing.T) {
	a, b := pair(t, Options{WriteTimeout: time.Nanosecond}, Options{})
	for range 3 {
		if err := a.Send("late", nil); err != nil {
			t.Fatal(err)
		}
		if m, err := b.Receive(t.Context()); err != nil || m.Type != "late" {
			t.Fatalf("got %v, %v", m, err)
		}
	}
}

func TestReceive(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	if _, err := b.Receive(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing came: %v", err)
	}
	if err := a.Send("x", &body{N: 7}); err != nil {
		t.Fatal(err)
	}
	m, err := b.Receive(t.Context())
	var got body
	if err == nil {
		err = m.Decode(&got)
	}
	if err != nil || m.Type != "x" || got.N != 7 {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Error(err)
	}
	if _, err := b.Receive(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("at the end: %v", err)
	}
	if err := b.Send("answer without a question", nil); err != nil {
		t.Errorf("the other direction: %v", err)
	}
}

func TestHostilePackets(t *testing.T) {
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer w.Close()
	large, err := NewFile("large", make([]byte, 2*MaxPacket))
	if err != nil {
		t.Fatal(err)
	}
	defer large.Close()
	tests := map[string]struct {
		packet string
		files  []*os.File
	}{
		"no JSON":                {packet: "hello"},
		"no object":              {packet: `["type"]`},
		"no type":                {packet: `{}`},
		"a number too large":     {packet: `{"type":"x","seq":18446744073709551616}`},
		"truncated":              {packet: `{"type":"` + strings.Repeat("x", MaxPacket) + `"}`},
		"too many files":         {packet: `{"type":"x"}`, files: []*os.File{pipe, pipe, pipe, pipe, pipe}},
		"no body came along":     {packet: `{"type":"x","body_file":true}`},
		"a pipe for a body":      {packet: `{"type":"x","body_file":true}`, files: []*os.File{pipe}},
		"a body that is too big": {packet: `{"type":"x","body_file":true}`, files: []*os.File{large}},
		"nothing":                {packet: ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, Options{}, Options{MaxBody: MaxPacket})
			before := openFiles(t)
			var fds []int
			for _, f := range test.files {
				fds = append(fds, int(f.Fd()))
			}
			var rights []byte
			if len(fds) > 0 {
				rights = unix.UnixRights(fds...)
			}
			if _, _, err := a.socket.WriteMsgUnix([]byte(test.packet), rights, nil); err != nil {
				t.Fatal(err)
			}
			if m, err := b.Receive(t.Context()); err == nil {
				t.Errorf("took %+v", m)
			}
			if after := openFiles(t); after > before {
				t.Errorf("%d files are left open", after-before)
			}
			select {
			case <-b.Done():
			default:
				t.Error("the connection goes on")
			}
		})
	}
}

// openFiles counts the files that this process has open.
func openFiles(t *testing.T) int {
	t.Helper()
	runtime.GC() // so that no finalizer closes one meanwhile
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// A newer peer may say more: members and types that this end does not know do no harm.
func TestNewerPeer(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	if _, err := a.socket.Write([]byte(`{"type":"newer","urgency":{"level":9},"text":"x","more":[1]}`)); err != nil {
		t.Fatal(err)
	}
	m, err := b.Receive(t.Context())
	var got body
	if err == nil {
		err = m.Decode(&got)
	}
	if err != nil || m.Type != "newer" || got.Text != "x" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestListen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if second, err := Listen(path); err == nil {
		_ = second.Close()
		t.Error("two listeners share a path")
	}
	c, err := Dial(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	socket, err := l.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	accepted := New(socket, Options{})
	defer accepted.Close()
	peer, err := accepted.Peer()
	if err != nil || peer.PID != os.Getpid() || int(peer.UID) != os.Getuid() {
		t.Errorf("peer: %+v, %v", peer, err)
	}
}

func TestFromFileRefuses(t *testing.T) {
	a, b, err := StreamPair()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if c, err := FromFile(a, Options{}); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("a socket of bytes: %v, %v", c, err)
	}
}

func TestOpenStream(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	near, err := a.OpenStream("stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.Receive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	far, err := NetConn(m.File())
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = fmt.Fprint(far, "hello")
		_ = far.Close()
	}()
	if text, err := io.ReadAll(near); string(text) != "hello" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	_ = near.Close()
	if _, err := NetConn(nil); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("no file: %v", err)
	}
}

// FuzzReceive: whatever a peer sends is a message or an error, and leaves no file open.
func FuzzReceive(f *testing.F) {
	f.Add([]byte(`{"type":"x","seq":1,"timeout_ms":5,"text":"hello"}`), []byte("x"), 0)
	f.Add([]byte(`{"type":"x","body_file":true}`), []byte(`{"text":"hello"}`), 1)
	f.Add([]byte(`{"type":"answer","seq":1,"error":"no","kind":3}`), []byte{}, 2)
	f.Add([]byte(`{"type":"x","timeout_ms":-9223372036854775808}`), []byte{}, 0)
	f.Fuzz(func(t *testing.T, packet, content []byte, files int) {
		var passed []*os.File
		for range min(max(files, 0), MaxFiles) {
			file, err := NewFile("fuzz", content)
			if err != nil {
				t.Fatal(err)
			}
			passed = append(passed, file)
		}
		m, err := decode(packet, passed, 1<<20)
		var in body
		if err == nil && m.Decode(&in) == nil {
			if limit := m.Timeout(time.Minute); limit <= 0 || limit > time.Minute {
				t.Errorf("a timeout of %v", limit)
			}
		}
		m.Close()
		for _, file := range passed {
			if err := file.Close(); !errors.Is(err, os.ErrClosed) {
				t.Error("a file was left open")
			}
		}
	})
}

// FuzzEncode: what one end encodes the other end reads.
func FuzzEncode(f *testing.F) {
	f.Add("x", "text", []byte("data"), uint64(1), int64(5))
	f.Add("type", "", bytes.Repeat([]byte("y"), MaxPacket), uint64(0), int64(0))
	f.Fuzz(func(t *testing.T, kind, text string, data []byte, id uint64, timeout int64) {
		if kind == "" {
			return
		}
		want := body{Text: strings.ToValidUTF8(text, "?"), Data: data}
		h := Header{Type: strings.ToValidUTF8(kind, "?"), ID: id, TimeoutMS: timeout}
		packet, file, err := encode(h, &want, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		var files []*os.File
		if file != nil {
			files = append(files, file)
		}
		m, err := decode(packet, files, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		var got body
		if err := m.Decode(&got); err != nil {
			t.Fatal(err)
		}
		if m.Type != h.Type || m.ID != id || m.TimeoutMS != timeout || got.Text != want.Text || !bytes.Equal(got.Data, want.Data) {
			t.Errorf("sent %+v %.100v, got %+v %.100v", h, want, m.Header, got)
		}
	})
}

// TestDescriptorShortage: a message whose files find no free descriptors arrives without them,
// says so, and ends nothing.
func TestDescriptorShortage(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	file, err := NewFile("passed", []byte("content"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := a.Send("short", &body{Text: "here"}, file); err != nil {
		t.Fatal(err)
	}
	m, err := withoutDescriptors(t, func() (*Message, error) { return b.Receive(t.Context()) })
	if err != nil {
		t.Fatalf("the connection ended: %v", err)
	}
	var got body
	if err := m.Decode(&got); err != nil || got.Text != "here" || m.File() != nil {
		t.Errorf("got %+v, %v", got, err)
	}
	if outboard.KindOf(m.Lost()) != outboard.Exhausted {
		t.Errorf("Lost() = %v, want exhausted", m.Lost())
	}
	if err := a.Send("long", &body{Text: strings.Repeat("x", MaxPacket)}); err != nil {
		t.Fatal(err)
	}
	m, err = withoutDescriptors(t, func() (*Message, error) { return b.Receive(t.Context()) })
	if err != nil {
		t.Fatalf("the connection ended: %v", err)
	}
	if err := m.Decode(&got); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("Decode of a lost body: %v", err)
	}
	if err := a.Send("again", nil, file); err != nil {
		t.Fatal(err)
	}
	m, err = b.Receive(t.Context())
	if err != nil || m.Lost() != nil {
		t.Fatalf("got %v, %v after the shortage", m, err)
	}
	m.Close()
}

// withoutDescriptors calls f while this process may open no more descriptors.
func withoutDescriptors(t *testing.T, f func() (*Message, error)) (*Message, error) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}()
	return f()
}

// TestLastMessage: what a peer sent before it ended arrives, even if the peer has not read all
// that was sent to it.
func TestLastMessage(t *testing.T) {
	a, b := pair(t, Options{}, Options{})
	if err := a.Send("unread", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Send("last", nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if m, err := a.Receive(t.Context()); err != nil || m.Type != "last" {
		t.Errorf("got %v, %v, want the last message", m, err)
	}
	if m, err := a.Receive(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("got %v, %v, want EOF", m, err)
	}
}
