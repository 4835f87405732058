package framed

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm"
)

// ringPair gives both ends of a ring.
func ringPair(t testing.TB) (client, worker *shm.Ring) {
	t.Helper()
	client, err := shm.Create(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(client.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	worker, err = shm.Open(os.NewFile(uintptr(fd), "ring"), shm.Worker)
	if err != nil {
		t.Fatal(err)
	}
	return client, worker
}

// relayed is a program's ring and a worker's ring, joined by a fabric stream as
// between two machines.
type relayed struct {
	program, worker *shm.Ring
	stream          *Stream
	conn            *Conn
	near, far       error
	relays          sync.WaitGroup
	nearDone        chan struct{} // closed when near is set
}

func newRelayed(t testing.TB) *relayed {
	client, server := tlsPair(t, Options{})
	r := &relayed{conn: client}
	program, near := ringPair(t)
	far, worker := ringPair(t)
	r.program, r.worker = program, worker
	r.stream = open(t, client, "session")
	r.nearDone = make(chan struct{})
	r.relays.Go(func() {
		defer close(r.nearDone)
		r.near = Relay(r.stream, near)
	})
	r.relays.Go(func() {
		s, err := server.Accept(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		r.far = Relay(s, far)
	})
	t.Cleanup(func() {
		r.relays.Wait()
		for _, ring := range []*shm.Ring{program, near, far, worker} {
			ring.Unmap()
		}
	})
	return r
}

func putAll(t testing.TB, r *shm.Ring, p []byte) {
	for len(p) > 0 {
		b, err := r.Reserve(1)
		if err != nil {
			t.Error(err)
			return
		}
		n := copy(b, p)
		r.Commit(n)
		p = p[n:]
	}
}

// getAll reads until the ring's end.
func getAll(r *shm.Ring) (all []byte, err error) {
	for {
		b, err := r.Next(1)
		if err != nil {
			return all, err
		}
		all = append(all, b...)
		r.Release(len(b))
	}
}

// A program that ends while its worker still answers has lost nothing: the worker hears all of
// it, and neither relay calls it a failure.
func TestRelayOfAnswersThatNobodyReads(t *testing.T) {
	for name, last := range map[string]func(r *relayed){
		"and nothing else":        func(*relayed) {},
		"and the connection ends": func(r *relayed) { _ = r.conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelayed(t)
			want := randomBytes(100 << 10)
			putAll(t, r.program, want[:50<<10])
			begun, answers := make(chan struct{}), make(chan error, 1)
			go func() {
				for n := 0; ; n++ { // until the ring ends
					if n == 4 {
						close(begun) // the ring has been full
					}
					b, err := r.worker.Reserve(32 << 10)
					if err != nil {
						answers <- err
						return
					}
					r.worker.Commit(len(b))
				}
			}()
			<-begun
			r.program.Close(shm.Done)
			<-r.nearDone
			last(r)
			if got, err := getAll(r.worker); !errors.Is(err, io.EOF) || !bytes.Equal(got, want[:50<<10]) {
				t.Errorf("the worker heard %d bytes, %v", len(got), err)
			}
			r.relays.Wait()
			if err := <-answers; !errors.Is(err, io.EOF) || r.near != nil || r.far != nil {
				t.Errorf("the worker's answers ended with %v, the relays with %v and %v", err, r.near, r.far)
			}
		})
	}
}

func TestRelayCarriesBytesAndACleanEnd(t *testing.T) {
	r := newRelayed(t)
	want := randomBytes(5 << 20)
	var wg sync.WaitGroup
	wg.Go(func() { putAll(t, r.worker, want) })
	wg.Go(func() { putAll(t, r.program, want) })
	take := func(ring *shm.Ring) {
		for rest := want; len(rest) > 0; {
			b, err := ring.Next(1)
			if err != nil {
				t.Error(err)
				return
			}
			if !bytes.Equal(b, rest[:len(b)]) {
				t.Error("bytes differ")
			}
			ring.Release(len(b))
			rest = rest[len(b):]
		}
	}
	wg.Go(func() { take(r.program) })
	take(r.worker)
	wg.Wait()
	putAll(t, r.program, []byte("last words"))
	r.program.Close(shm.Done)
	if got, err := getAll(r.worker); string(got) != "last words" || !errors.Is(err, io.EOF) {
		t.Errorf("worker read %q, %v; want all and io.EOF", got, err)
	}
	r.relays.Wait()
	if r.near != nil || r.far != nil {
		t.Errorf("relays ended with %v and %v", r.near, r.far)
	}
}

func TestRelayCarriesReasons(t *testing.T) {
	lost := outboard.Errorf(outboard.LeaseLost, "lease", "expired")
	for name, c := range map[string]struct {
		end  func(r *relayed)
		want outboard.Kind
	}{
		"program": {func(r *relayed) { r.program.Fail(lost) }, outboard.LeaseLost},
		"worker":  {func(r *relayed) { r.worker.Fail(lost) }, outboard.LeaseLost},
		"stream":  {func(r *relayed) { r.stream.conn.fail(lost) }, outboard.LeaseLost},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelayed(t)
			putAll(t, r.program, []byte("hello"))
			if b, err := r.worker.Next(5); err != nil || string(b) != "hello" {
				t.Fatalf("worker read %q, %v", b, err)
			}
			r.worker.Release(5)
			c.end(r)
			_, err := r.program.Next(1)
			if outboard.KindOf(err) != c.want {
				t.Errorf("program ended with %v, want %v", err, c.want)
			}
			if _, err = r.worker.Next(1); name == "stream" {
				c.want = outboard.Unreachable
			}
			if outboard.KindOf(err) != c.want {
				t.Errorf("worker ended with %v, want %v", err, c.want)
			}
			r.relays.Wait()
			if outboard.KindOf(r.near) == outboard.Other || outboard.KindOf(r.far) != c.want {
				t.Errorf("relays returned %v and %v", r.near, r.far)
			}
		})
	}
}

func BenchmarkRelay(b *testing.B) {
	r := newRelayed(b)
	var echo sync.WaitGroup
	echo.Go(func() {
		for {
			p, err := r.worker.Next(1)
			if err != nil {
				return
			}
			n := len(p)
			q, err := r.worker.Reserve(n)
			if err != nil {
				return
			}
			copy(q, p)
			r.worker.Commit(n)
			r.worker.Release(n)
		}
	})
	for b.Loop() {
		q, _ := r.program.Reserve(64)
		clear(q[:64])
		r.program.Commit(64)
		if _, err := r.program.Next(64); err != nil {
			b.Fatal(err)
		}
		r.program.Release(64)
	}
	r.program.Close(shm.Done)
	echo.Wait()
}
