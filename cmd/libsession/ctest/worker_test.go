// Package ctest tests the client's session, a C program with a worker in Go.
package ctest_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/shm"
)

// What the C program asks for; testdata/client.c has the same numbers.
const (
	opEcho      = 1  // the body comes back as the body
	opMirror    = 2  // the bulk comes back as the bulk
	opEarly     = 3  // counted
	opCount     = 4  // words: early messages, messages that said alone
	opRead      = 5  // early; data of {size} comes later
	opNotices   = 6  // {count, size, bulk}: notices come before the reply
	opClose     = 7  // {reason}: the ring is closed instead of a reply
	opHang      = 8  // no reply
	opHangUp    = 9  // the socket is closed instead of a reply
	opMisbehave = 10 // {kind}: a message that makes no sense
	opLater     = 11 // early; {count, size}: notices come
	opStall     = 12 // early: nothing is read for a while

	opData   = 0x8103
	opNotice = 0x8200
)

// A worker answers the C program over one ring.
type worker struct {
	t     testing.TB
	ring  *shm.Ring
	in    *session.Reader
	out   *session.Writer
	early uint64
	alone uint64
	left  bool   // the socket was closed, and the ring was not
	junk  []byte // what misbehave says when its kind is 12
}

func words(v ...uint64) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func word(b []byte, i int) uint64 {
	if len(b) < 8*i+8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b[8*i:])
}

func pattern(n uint64) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(uint64(i)*2654435761>>13 + n)
	}
	return b
}

func (w *worker) bulk() []byte {
	var all []byte
	for {
		b, err := w.in.NextBulk()
		if err != nil || len(b) == 0 {
			return all
		}
		all = append(all, b...)
	}
}

func (w *worker) run() {
	for {
		h, body, err := w.in.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) && !w.closed() {
				w.t.Errorf("worker: %v", err)
			}
			return
		}
		if h.Flags&session.Alone != 0 {
			w.alone++
		}
		if !w.serve(h, bytes.Clone(body)) {
			return
		}
	}
}

func (w *worker) closed() bool {
	_, closed := w.ring.Closed()
	return closed
}

func (w *worker) reply(h session.Header, status int32, body []byte, bulk ...[]byte) {
	_ = w.out.Send(session.Header{Op: h.Op, Flags: session.IsReply, Call: h.Call, Status: status}, body, bulk...)
}

func (w *worker) notices(op uint16, count, size, bulk uint64) {
	for i := range count {
		body := append(words(i), make([]byte, size&^7)...)
		_ = w.out.Send(session.Header{Op: op}, body, pattern(bulk))
	}
}

// serve is false when nothing more will be read.
func (w *worker) serve(h session.Header, body []byte) bool {
	switch h.Op {
	case opEcho:
		w.reply(h, int32(len(body)), body)
	case opMirror:
		w.reply(h, 0, nil, w.bulk())
	case opEarly:
		w.bulk()
		w.early++
	case opCount:
		w.reply(h, 0, words(w.early, w.alone))
	case opRead:
		_ = w.out.Send(session.Header{Op: opData}, words(h.Serial, 0), pattern(word(body, 0)))
	case opNotices:
		w.notices(opNotice, word(body, 0), word(body, 1), word(body, 2))
		w.reply(h, 0, nil)
	case opLater:
		w.notices(opNotice, word(body, 0), word(body, 1), 0)
	case opStall:
		time.Sleep(20 * time.Millisecond)
	case opClose:
		_ = w.ring.Close(shm.Reason(word(body, 0)))
		return false
	case opHangUp:
		w.left = true
		return false
	case opHang:
	case opMisbehave:
		w.misbehave(h, word(body, 0))
		return false
	default:
		w.t.Errorf("op %d", h.Op)
	}
	return true
}

// raw puts a message on the ring as it is.
func (w *worker) raw(size uint32, op, flags uint16, call uint32, status int32, bulk, serial uint64, rest []byte) {
	b, err := w.ring.Reserve(session.HeaderSize + len(rest))
	if err != nil {
		return
	}
	binary.LittleEndian.PutUint32(b, size)
	binary.LittleEndian.PutUint16(b[4:], op)
	binary.LittleEndian.PutUint16(b[6:], flags)
	binary.LittleEndian.PutUint32(b[8:], call)
	binary.LittleEndian.PutUint32(b[12:], uint32(status))
	binary.LittleEndian.PutUint64(b[16:], bulk)
	binary.LittleEndian.PutUint64(b[24:], serial)
	copy(b[session.HeaderSize:], rest)
	w.ring.Commit(session.HeaderSize + len(rest))
}

// misbehave is the first message of the worker.
func (w *worker) misbehave(h session.Header, kind uint64) {
	const reply = session.IsReply
	switch kind {
	case 0: // too small
		w.raw(24, opEcho, reply, h.Call, 0, 0, 1, nil)
	case 1: // not a multiple of 8
		w.raw(33, opEcho, reply, h.Call, 0, 0, 1, make([]byte, 8))
	case 2: // too large
		w.raw(1<<31, opEcho, reply, h.Call, 0, 0, 1, nil)
	case 3: // a serial that does not follow
		w.raw(32, opEcho, reply, h.Call, 0, 0, 2, nil)
	case 4: // too much bulk
		w.raw(32, opEcho, reply, h.Call, 0, 1<<62, 1, nil)
	case 5: // bulk data for no request
		w.raw(32, opEcho, reply, h.Call, 0, 8, 1, make([]byte, 8))
	case 6: // an answer to nothing
		w.raw(32, opEcho, reply, h.Call+7, 0, 0, 1, nil)
	case 7: // flags that are none
		w.raw(32, opEcho, 0x80, 0, 0, 0, 1, nil)
	case 8: // a question
		w.raw(32, opEcho, session.WantReply, 5, 0, 0, 1, nil)
	case 9: // data of no read
		w.raw(48, opData, 0, 0, 0, 0, 1, words(99, 0))
	case 10: // data without fields
		w.raw(32, opData, 0, 0, 0, 0, 1, nil)
	case 11: // the rest of a reply never comes
		w.left = true
		w.raw(1024, opEcho, reply, h.Call, 0, 0, 1, make([]byte, 64))
	case 12: // whatever it was given, and then a worker that is gone
		w.say(w.junk)
		w.left = true
	}
}

// say puts bytes on the ring as they are.
func (w *worker) say(b []byte) {
	for len(b) > 0 {
		room, err := w.ring.Reserve(1)
		if err != nil {
			return
		}
		n := copy(room, b)
		w.ring.Commit(n)
		b = b[n:]
	}
}

// ---- the socket

type server struct {
	t        testing.TB
	path     string
	area     int
	leases   int
	refuse   atomic.Value // the words of a refusal; none: programs are welcome
	junk     atomic.Value // []byte: what workers say that misbehave
	listener *net.UnixListener
	group    sync.WaitGroup
}

func listen(t testing.TB, area int) *server {
	t.Helper()
	dir, err := os.MkdirTemp("", "obs")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, path: filepath.Join(dir, "s"), area: area, leases: 1}
	if s.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: s.path}); err != nil {
		t.Fatal(err)
	}
	s.group.Go(s.accept)
	t.Cleanup(func() {
		_ = s.listener.Close()
		s.group.Wait() // the test's context has ended
		_ = os.RemoveAll(dir)
	})
	return s
}

func (s *server) accept() {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		s.group.Go(func() { s.session(conn) })
	}
}

func (s *server) welcome(conn *net.UnixConn, ring *os.File) error {
	b := make([]byte, 64)
	var rights []byte
	if words, refused := s.refuse.Load().(string); refused {
		binary.LittleEndian.PutUint32(b, 5)
		binary.LittleEndian.PutUint32(b[20:], uint32(len(words)))
		b = append(b, words...)
	} else {
		rights = unix.UnixRights(int(ring.Fd()))
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(s.leases))
	binary.LittleEndian.PutUint64(b[8:], 1<<30)
	binary.LittleEndian.PutUint32(b[16:], 5000)
	_, _, err := conn.WriteMsgUnix(b, rights, nil)
	return err
}

func (s *server) session(conn *net.UnixConn) {
	defer conn.Close()
	hello := make([]byte, 32)
	if _, err := io.ReadFull(conn, hello); err != nil || string(hello[:8]) != "OBSESS1\x00" {
		s.t.Errorf("hello %q: %v", hello, err)
		return
	}
	f, err := shm.NewFile(s.area)
	if err != nil {
		s.t.Error(err)
		return
	}
	ring, err := shm.Open(f, shm.Worker)
	if err != nil {
		s.t.Error(err)
		return
	}
	if err := s.welcome(conn, f); err != nil || s.refuse.Load() != nil {
		ring.Unmap()
		return
	}
	in, err := session.NewReader(ring, s.area)
	if err != nil {
		s.t.Error(err)
		return
	}
	w := &worker{t: s.t, ring: ring, in: in, out: session.NewWriter(ring, s.area)}
	w.junk, _ = s.junk.Load().([]byte)
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run()
		if w.left {
			_ = conn.CloseWrite()
		}
	}()
	_, _ = io.Copy(io.Discard, conn) // until the program is gone
	select {
	case <-done:
	default:
		_ = ring.Close(shm.Done)
		<-done
	}
	if w.left {
		<-s.t.Context().Done()
	}
	_ = ring.Close(shm.Done)
	_ = in.Close()
	ring.Unmap()
}

// ---- the program

var build struct {
	once    sync.Once
	program string
	err     error
	text    []byte
}

// program builds the client, once for all tests, with sanitizers; OUTBOARD_TEST_SANITIZE=thread chooses
// others, and none is for measuring.
func program(t testing.TB) string {
	t.Helper()
	need.Program(t, "gcc")
	build.once.Do(func() {
		dir, err := os.MkdirTemp("", "libsession")
		if err != nil {
			build.err = err
			return
		}
		build.program = filepath.Join(dir, "client")
		sanitizers := os.Getenv("OUTBOARD_TEST_SANITIZE")
		if sanitizers == "" {
			sanitizers = "address,undefined"
		}
		sources, _ := filepath.Glob("../[rs]*/*.c")
		args := []string{"-std=c11", "-g", "-Wall", "-Wextra", "-Werror", "-I../ring", "-I../record", "-I../session", "-o", build.program, "testdata/client.c"}
		if sanitizers == "none" {
			args = append(args, "-O2")
		} else {
			args = append(args, "-O1", "-fsanitize="+sanitizers, "-fno-sanitize-recover=all")
		}
		build.text, build.err = exec.Command("gcc", append(append(args, sources...), "-lpthread")...).CombinedOutput()
	})
	if build.err != nil {
		t.Fatalf("gcc: %v\n%s", build.err, build.text)
	}
	return build.program
}

func TestMain(m *testing.M) {
	status := m.Run()
	if build.program != "" {
		_ = os.RemoveAll(filepath.Dir(build.program))
	}
	os.Exit(status)
}

type outcome struct {
	out, err string
	failed   error
}

func (s *server) run(args ...string) outcome {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), program(s.t), append([]string{s.path}, args...)...)
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0")
	cmd.WaitDelay = time.Second
	var out, text strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &text
	limit := time.AfterFunc(90*time.Second, func() { _ = cmd.Process.Signal(unix.SIGABRT) })
	err := cmd.Run()
	limit.Stop()
	return outcome{strings.TrimSpace(out.String()), strings.TrimSpace(text.String()), err}
}

// crashed says that a signal ended the program: a fault, or that it hung.
func (o outcome) crashed() bool {
	exit, ok := errors.AsType[*exec.ExitError](o.failed)
	return ok && !exit.Exited()
}

func (s *server) must(args ...string) string {
	s.t.Helper()
	o := s.run(args...)
	if o.failed != nil || o.err != "" {
		s.t.Fatalf("client %v: %v\n%s\n%s", args, o.failed, o.out, o.err)
	}
	return o.out
}
