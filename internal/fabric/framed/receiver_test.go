package framed

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
)

// keeper is a Receiver that keeps all, in small rooms.
type keeper struct {
	room   [511]byte
	got    []byte
	over   chan struct{} // closed by the end or a failure
	once   sync.Once
	err    error
	worked chan struct{}
	block  chan struct{} // Work waits for it
}

func newKeeper() *keeper { return &keeper{over: make(chan struct{}), worked: make(chan struct{})} }

func (k *keeper) Buffer(int) []byte { return k.room[:] }

func (k *keeper) Filled(n int) int {
	k.got = append(k.got, k.room[:n]...)
	return n
}

func (k *keeper) Ended() bool {
	k.once.Do(func() { close(k.over) })
	return true
}

func (k *keeper) Work() {
	if k.block != nil {
		<-k.block
	}
	close(k.worked)
}

func (k *keeper) Failed(err error) {
	k.once.Do(func() {
		k.err = err
		close(k.over)
	})
}

// TestHandle gives streams to receivers: those that came before, and after.
func TestHandle(t *testing.T) {
	eachTransport(t, Options{}, func(t *testing.T, client, server *Conn) {
		want := randomBytes(600_000)
		keepers := make(chan *keeper, 3)
		write := func(from, to int) (s *Stream) {
			s = open(t, client, "kept")
			go func() {
				for from < to {
					n := min(to-from, 50_001)
					if _, err := s.Write(want[from : from+n]); err != nil {
						t.Error(err)
					}
					from += n
				}
				_ = s.CloseWrite()
			}()
			return s
		}
		defer write(0, len(want)).Close()
		other := open(t, client, "other")
		_, _ = other.Write([]byte("x"))
		for len(server.accepts) < 2 {
			runtime.Gosched()
		}
		server.Handle("kept", func(_ *Stream, header []byte) (Receiver, error) {
			if string(header) != "head of kept" {
				t.Errorf("header %q", header)
			}
			k := newKeeper()
			keepers <- k
			return k, nil
		})
		if s := accept(t, server); s.Method() != "other" {
			t.Errorf("accepted %q", s.Method())
		}
		defer write(0, len(want)).Close()
		for range 2 {
			k := <-keepers
			<-k.worked
			if !bytes.Equal(k.got, want) || k.err != nil {
				t.Errorf("kept %d bytes, %v; want %d", len(k.got), k.err, len(want))
			}
		}
	})
}

// TestLongWorkLetsOthersRead has a receiver's work wait for another stream.
func TestLongWorkLetsOthersRead(t *testing.T) {
	client, server := tlsPair(t, Options{})
	first, second := newKeeper(), newKeeper()
	first.block = second.worked
	next := []*keeper{first, second}
	server.Handle("kept", func(*Stream, []byte) (Receiver, error) {
		k := next[0]
		next = next[1:]
		return k, nil
	})
	for range 2 {
		if _, err := client.Start(t.Context(), Opening{Method: "kept"}, Piece{Data: []byte("x"), End: true}); err != nil {
			t.Fatal(err)
		}
	}
	<-first.worked
}

func TestAcceptorRefuses(t *testing.T) {
	client, server := tlsPair(t, Options{})
	server.Handle("kept", func(*Stream, []byte) (Receiver, error) {
		return nil, outboard.Errorf(outboard.Busy, "", "not now")
	})
	k := newKeeper()
	if _, err := client.Start(t.Context(), Opening{Method: "kept", Receiver: k}, Piece{Data: []byte("x"), End: true}); err != nil {
		t.Fatal(err)
	}
	<-k.over
	if outboard.KindOf(k.err) != outboard.Busy {
		t.Error(k.err)
	}
}

// TestStartFails checks that what is not begun leaves nothing.
func TestStartFails(t *testing.T) {
	client, server := tlsPair(t, Options{MaxStreams: 1})
	ctx, cancel := context.WithCancel(t.Context())
	s, err := client.Start(ctx, Opening{Method: "m"}, Piece{Data: []byte("x")})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := client.Start(ctx, Opening{Method: "m"}, Piece{}); !errors.Is(err, context.Canceled) {
		t.Errorf("no slot: %v", err)
	}
	s.Reset(nil)
	_ = server
	if _, err := client.Start(t.Context(), Opening{}, Piece{}); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("no method: %v", err)
	}
}

// TestPieces sends pieces of all sizes.
func TestPieces(t *testing.T) {
	eachTransport(t, Options{}, func(t *testing.T, client, server *Conn) {
		k := newKeeper()
		server.Handle("kept", func(*Stream, []byte) (Receiver, error) { return k, nil })
		all := randomBytes(2 << 20)
		var want []byte
		cut := func(n int) []byte {
			p := all[len(want) : len(want)+n]
			want = append(want, p...)
			return p
		}
		s, err := client.Start(t.Context(), Opening{Method: "kept"}, Piece{Prefix: cut(3), Data: cut(300_000), Suffix: cut(4)})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range []int{0, 1, maxQueued - 9, maxQueued, maxData - 5, maxData, 500_000} {
			if err := s.Send(Piece{Prefix: cut(5), Data: cut(n), Suffix: cut(n % 3)}); err != nil {
				t.Fatal(n, err)
			}
		}
		if err := s.Send(Piece{Suffix: cut(2), End: true}); err != nil {
			t.Fatal(err)
		}
		if err := s.Send(Piece{Data: []byte("x")}); !errors.Is(err, ErrClosed) {
			t.Errorf("after the end: %v", err)
		}
		<-k.worked
		if !bytes.Equal(k.got, want) {
			t.Errorf("%d bytes came, want %d", len(k.got), len(want))
		}
	})
}
