package turns_test

import (
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/internal/turns"
)

// reader is a connection of an account, and the bytes that its reader has been given.
type reader struct {
	*turns.Conn
	peer net.Conn
	got  chan byte
	next chan struct{} // the reader asks for more
}

// open opens a connection of an account, whose reader reads once for each message in next.
func open(t *testing.T, g *turns.Group, name string) *reader {
	t.Helper()
	peer, conn := net.Pipe()
	r := &reader{Conn: g.Conn(conn, name), peer: peer, got: make(chan byte, 10), next: make(chan struct{}, 10)}
	t.Cleanup(func() { _, _ = peer.Close(), r.Close() })
	go func() {
		b := make([]byte, 1)
		for range r.next {
			if n, _ := r.Read(b); n > 0 {
				r.got <- b[0]
			}
		}
	}()
	t.Cleanup(func() { close(r.next) })
	r.next <- struct{}{}
	return r
}

// send sends a byte to the connection's reader and waits until it has been received.
func (r *reader) send(t *testing.T) {
	t.Helper()
	if _, err := r.peer.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// proceeded counts the connections whose readers have received a byte, and a turn.
func proceeded(conns []*reader) (n int) {
	for _, r := range conns {
		n += len(r.got)
	}
	return n
}

// flood opens connections of an account, all of which have data.
func flood(t *testing.T, g *turns.Group, name string, n int) (conns []*reader) {
	t.Helper()
	for range n {
		r := open(t, g, name)
		r.send(t)
		conns = append(conns, r)
	}
	return conns
}

// TestTurnsOfOthers: however many connections of one account have data, only a few of their readers
// continue, and a reader of another account continues at once.
func TestTurnsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := turns.NewGroup()
		busy := flood(t, g, "busy", 64)
		if n, want := proceeded(busy), runtime.GOMAXPROCS(0); n != want {
			t.Errorf("%d readers of one account continued, want %d", n, want)
		}
		quiet := flood(t, g, "quiet", 1)
		if proceeded(quiet) != 1 {
			t.Error("a reader of another account waits")
		}
	})
}

// TestTurnEndsWithNextRead: a reader that reads again gives its turn to the one that has waited
// longest.
func TestTurnEndsWithNextRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := turns.NewGroup()
		limit := runtime.GOMAXPROCS(0)
		conns := flood(t, g, "busy", limit+2)
		conns[0].next <- struct{}{}
		synctest.Wait()
		if proceeded(conns) != limit+1 || len(conns[limit].got) != 1 {
			t.Errorf("%d readers continued after one had read again, want %d, the next of which is the first that waits", proceeded(conns), limit+1)
		}
	})
}

// TestTurnLapses: readers that wait for something else don't keep their turns.
func TestTurnLapses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := flood(t, turns.NewGroup(), "busy", 64)
		time.Sleep(time.Second) // of the bubble's clock
		if n := proceeded(conns); n != len(conns) {
			t.Errorf("%d of %d readers continued", n, len(conns))
		}
	})
}

// TestLeave: a connection that moves to another account, or is closed, no longer waits and takes no
// turn with it.
func TestLeave(t *testing.T) {
	for what, leave := range map[string]func(*reader){
		"moved":  func(r *reader) { r.SetAccount("other") },
		"closed": func(r *reader) { _ = r.Close() },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := runtime.GOMAXPROCS(0)
				conns := flood(t, turns.NewGroup(), "busy", limit+2)
				leave(conns[limit]) // it waits
				synctest.Wait()
				if len(conns[limit].got) != 1 {
					t.Error("its reader still waits")
				}
				leave(conns[0]) // it has a turn
				synctest.Wait()
				if len(conns[limit+1].got) != 1 {
					t.Error("its turn was lost")
				}
			})
		})
	}
}
