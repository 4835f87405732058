package shared_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/fabric/shared"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// managedOptions are those of the end that moves.
func managedOptions() shared.Options {
	return shared.Patient(shared.Options{
		Handler: echo{}, Heap: 1 << 20, Slots: 16,
		Resume: func(s shared.Resumed) error { return echo{}.Serve(s) },
	})
}

// managed serves one connection: of a listener, or of a predecessor. When it reads
// a path on its input it hands the connection to who listens there.
func managed(path string, succeed string) int {
	conns := make(chan *shared.Conn, 1)
	if succeed != "" {
		go takeOver(path, conns)
	} else {
		l, err := shared.Listen(path, managedOptions())
		if err != nil {
			return 1
		}
		go func() { _ = l.Serve(context.Background(), func(c *shared.Conn) error { conns <- c; return nil }) }()
	}
	_, _ = os.Stdout.WriteString("ready")
	line, err := bufio.NewReader(os.Stdin).ReadString('\n')
	if err != nil {
		return 0
	}
	if err := handOver(<-conns, strings.TrimSpace(line)); err != nil {
		fmt.Fprintln(os.Stderr, "hand over:", err)
		return 1
	}
	return 0
}

func takeOver(path string, conns chan *shared.Conn) {
	l, err := unixsock.Listen(path)
	if err != nil {
		return
	}
	socket, err := l.AcceptUnix()
	if err == nil {
		var c *shared.Conn
		if c, err = receive(socket, managedOptions()); err == nil {
			conns <- c
			_, err = socket.Write([]byte("!"))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "take over:", err)
	}
}

func receive(socket *net.UnixConn, o shared.Options) (*shared.Conn, error) {
	var files []*os.File
	for range 2 {
		f, err := unixsock.Receive(socket, make([]byte, 1))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	var state shared.State
	if err := gob.NewDecoder(socket).Decode(&state); err != nil {
		return nil, err
	}
	return shared.Import(state, files, o)
}

func handOver(c *shared.Conn, path string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	state, files, err := c.Export(ctx)
	if err != nil {
		return err
	}
	socket, err := unixsock.Dial(ctx, path)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := unixsock.Send(socket, []byte{0}, f); err != nil {
			return err
		}
	}
	if err := gob.NewEncoder(socket).Encode(state); err != nil {
		return err
	}
	_, err = io.ReadFull(socket, make([]byte, 1))
	return err
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func startManaged(t *testing.T, path string, succeed string) process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHARED_TEST_PEER=managed", "SHARED_TEST_PATH="+path, "SHARED_TEST_SUCCEED="+succeed)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return process{cmd, in}
}

// numbered is a message that says which one it is.
func numbered(i, size int) *call.Message {
	b := make([]byte, 8+size)
	binary.LittleEndian.PutUint64(b, uint64(i))
	copy(b[8:], noise[i%1000:])
	return &call.Message{Data: b}
}

func isNumbered(m *call.Message, i, size int) error {
	if want := numbered(i, size).Data; !bytes.Equal(m.Data, want) {
		return fmt.Errorf("message %d: got %d bytes that differ from the %d sent", i, len(m.Data), len(want))
	}
	m.Free()
	return nil
}

// TestManagedEndMoves moves the end that serves from process to process while
// calls and streams of all sizes are under way. Each message has to come back, once
// and in its order.
func TestManagedEndMoves(t *testing.T) {
	dir := t.TempDir()
	now := startManaged(t, dir+"/0", "")
	c := dial(t, dir+"/0", shared.Patient(shared.Options{}))
	var stop atomic.Bool
	var rounds atomic.Int64
	var wg sync.WaitGroup
	for _, size := range []int{8, 1000, 60_000, 300_000} {
		for range 2 {
			wg.Go(func() {
				if err := unaryRounds(c, size, &stop, &rounds); err != nil {
					t.Errorf("unary of %d: %v", size, err)
				}
			})
		}
		wg.Go(func() {
			if err := streamRounds(c, size, &stop, &rounds); err != nil {
				t.Errorf("stream of %d: %v", size, err)
			}
		})
	}
	for i := 1; i <= 3 && !t.Failed(); i++ {
		for before := rounds.Load(); rounds.Load() < before+50 && !t.Failed(); {
			time.Sleep(time.Millisecond) // until there is work under way
		}
		path := fmt.Sprint(dir, "/", i)
		next := startManaged(t, path, "yes")
		if _, err := fmt.Fprintln(now.in, path); err != nil {
			t.Fatal(err)
		}
		if err := now.cmd.Wait(); err != nil {
			t.Fatalf("process %d: %v", i-1, err)
		}
		now = next
	}
	stop.Store(true)
	wg.Wait()
}

func unaryRounds(c *shared.Conn, size int, stop *atomic.Bool, rounds *atomic.Int64) error {
	for i := 0; !stop.Load(); i++ {
		m, _, err := c.Unary(context.Background(), &call.Head{Method: fmt.Sprint("/a.B/", i%7)}, numbered(i, size))
		if err == nil {
			err = isNumbered(m, i, size)
		}
		if err != nil {
			return err
		}
		rounds.Add(1)
	}
	return nil
}

func streamRounds(c *shared.Conn, size int, stop *atomic.Bool, rounds *atomic.Int64) error {
	s, err := c.Open(context.Background(), &call.Head{Method: "/a.B/S", Streaming: true})
	if err != nil {
		return err
	}
	sent := make(chan error, 1)
	var n atomic.Int64
	go func() {
		for i := 0; !stop.Load(); i++ {
			if err := s.Send(numbered(i, size)); err != nil {
				sent <- err
				return
			}
			n.Add(1)
		}
		sent <- s.CloseSend()
	}()
	for i := 0; ; i++ {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			err = <-sent
			if err == nil && int64(i) != n.Load() {
				err = fmt.Errorf("%d messages of %d came back", i, n.Load())
			}
			return err
		}
		if err == nil {
			err = isNumbered(m, i, size)
		}
		if err != nil {
			return err
		}
		rounds.Add(1)
	}
}

// TestCallingEndMoves moves the end that calls, with a stream and a unary call under
// way, to another Conn.
func TestCallingEndMoves(t *testing.T) {
	arrived, proceed := make(chan bool), make(chan bool)
	handler := streams(func(s call.ServerStream) error {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		arrived <- true
		<-proceed
		if err := s.Send(m); err != nil {
			return err
		}
		return echo{}.Serve(s)
	})
	c := dial(t, serve(t, shared.Options{Handler: handler}, welcome), shared.Options{})
	s, err := c.Open(t.Context(), &call.Head{Method: "/a.B/S", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(numbered(0, 100_000)); err != nil {
		t.Fatal(err)
	}
	unary := make(chan error, 1)
	go func() {
		m, _, err := c.Unary(t.Context(), &call.Head{Method: "/a.B/U"}, numbered(1, 10_000))
		m.Free()
		unary <- err
	}()
	<-arrived
	<-arrived
	proceed <- true // for one of them, whose answer is then under way
	state, files, err := c.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ids := map[uint64]int{s.(interface{ ID() uint64 }).ID(): 100_000}
	err = <-unary
	if moved, ok := errors.AsType[*shared.MovedError](err); ok {
		ids[moved.Call] = 10_000
	} else if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); !errors.Is(err, shared.ErrMoved) {
		t.Errorf("the old end's Recv: %v", err)
	}
	next, err := shared.Import(state, files, shared.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	close(proceed)
	for id, size := range ids {
		s, ok := next.Opened(t.Context(), id)
		if !ok {
			t.Fatalf("call %d is lost", id)
		}
		m, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		first := 0
		if size == 10_000 {
			first = 1
		}
		if err := isNumbered(m, first, size); err != nil {
			t.Error(err)
		}
		_ = s.CloseSend()
		if _, err := s.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the end: %v", err)
		}
	}
}
