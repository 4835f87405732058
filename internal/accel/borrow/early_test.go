package borrow

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// leaseOf returns a lease whose sessions are the given links, in this order, and then an error.
// count returns the number of sessions that were requested.
func leaseOf(links ...*pipeLink) (lease Lease, count func() int) {
	var n atomic.Int64
	return Lease{Dial: func(context.Context) (Link, error) {
		if i := int(n.Add(1)); i <= len(links) {
			return links[i-1], nil
		}
		return nil, errors.New("no session")
	}}, func() int { return int(n.Load()) }
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// TestEarlySessionIsForOneProcess: the first process that requests a session receives it, and it
// outlives the limit for unused ones.
func TestEarlySessionIsForOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := newPipeLink(t)
		lease, _ := leaseOf(link)
		e, run := openEarly(t.Context(), lease, time.Second)
		go run()
		if got := e.receive(t.Context()); got != link {
			t.Fatalf("got %v, want the session", got)
		}
		if got := e.receive(t.Context()); got != nil {
			t.Errorf("a second process got %v", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if isClosed(link.closed) {
			t.Error("the session that a process uses was closed")
		}
	})
}

// TestUnusedEarlySessionEnds: after its limit, and when the server ends.
func TestUnusedEarlySessionEnds(t *testing.T) {
	for name, end := range map[string]func(cancel func()){
		"limit":  func(func()) { time.Sleep(time.Second) },
		"server": func(cancel func()) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				link := newPipeLink(t)
				lease, _ := leaseOf(link)
				e, run := openEarly(ctx, lease, time.Second)
				go run()
				synctest.Wait()
				if isClosed(link.closed) {
					t.Error("the session ended before its time")
				}
				end(cancel)
				synctest.Wait()
				if !isClosed(link.closed) {
					t.Error("the unused session is open")
				}
				if got := e.receive(t.Context()); got != nil {
					t.Errorf("a process got %v", got)
				}
			})
		})
	}
}

// TestEndedEarlySessionIsNotUsed: the process gets a session of its own instead.
func TestEndedEarlySessionIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := newPipeLink(t)
		close(link.done)
		lease, _ := leaseOf(link)
		e, run := openEarly(t.Context(), lease, time.Second)
		go run()
		if got := e.receive(t.Context()); got != nil {
			t.Errorf("got %v, want nothing", got)
		}
		if !isClosed(link.closed) {
			t.Error("the ended session was not closed")
		}
		failing, _ := leaseOf()
		e, run = openEarly(t.Context(), failing, time.Second)
		go run()
		if got := e.receive(t.Context()); got != nil {
			t.Errorf("got %v of a lease without sessions", got)
		}
	})
}

// TestServerOpensEarly: the server opens a session before a process requests one, and another for
// the next process.
func TestServerOpensEarly(t *testing.T) {
	links := []*pipeLink{newPipeLink(t), newPipeLink(t)}
	lease, count := leaseOf(links...)
	dial, opened := lease.Dial, make(chan struct{}, len(links))
	lease.Dial = func(ctx context.Context) (Link, error) {
		defer func() { opened <- struct{}{} }()
		return dial(ctx)
	}
	socket := filepath.Join(t.TempDir(), "s")
	s, err := Open(t.Context(), Options{Socket: socket, Leases: []Lease{lease}, Early: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	<-opened // no process has connected yet
	for i, link := range links {
		session, err := Connect(t.Context(), socket, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := count(); n != i+1 {
			t.Errorf("process %d: %d sessions were opened", i+1, n)
		}
		if err := session.Close(); err != nil {
			t.Error(err)
		}
		<-link.closed
	}
}
