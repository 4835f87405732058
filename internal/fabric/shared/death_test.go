package shared_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// mapped counts this process's regions.
func mapped(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "outboard-calls")
}

// busy makes calls of all kinds until the connection ends, and says when one ends
// in another way than well or with Unavailable.
func busy(c *shared.Conn) error {
	failed := make(chan error, 4)
	h := &call.Head{Method: "/a.B/C"}
	for _, n := range []int{64, 20000, 300_000} {
		go func() {
			for {
				request, err := c.Lend(n)
				var m *call.Message
				if err == nil {
					m, _, err = c.Unary(context.Background(), h, request)
				}
				if unsent(err) {
					request.Free()
				}
				m.Free()
				if err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	go func() { failed <- pingPong(c) }()
	var all error
	for range 4 {
		if err := <-failed; status.Code(err) != codes.Unavailable {
			all = errors.Join(all, err, errors.New("ended otherwise"))
		}
	}
	return all
}

func pingPong(c *shared.Conn) error {
	s, err := c.Open(context.Background(), &call.Head{Method: "/a.B/S", Streaming: true})
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		for s.Send(&call.Message{Data: make([]byte, 3000)}) == nil {
		}
	})
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return errors.New("the stream ended well")
		}
		if err != nil {
			return err
		}
		m.Free()
	}
}

// dialAll returns as many connections as it gets.
func dialAll(path string, n int) []*shared.Conn {
	var all []*shared.Conn
	for range n {
		if c, err := shared.Dial(context.Background(), path, shared.Patient(shared.Options{})); err == nil {
			all = append(all, c)
		}
	}
	return all
}

// TestPeerKilled kills the process that listens while several connections to it
// are busy, at a random moment. Each of them has a death of its own to survive.
func TestPeerKilled(t *testing.T) {
	const processes, each = 8, 16
	for range processes {
		path, cmd := startPeer(t, []string{"inline", "goroutines"}[rand.IntN(2)])
		var wg sync.WaitGroup
		for _, c := range dialAll(path, each) {
			wg.Go(func() {
				if err := busy(c); err != nil {
					t.Error(err)
				}
				c.Close()
			})
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond) // where the kill strikes, not what is tested
		cmd.Process.Kill()
		wg.Wait()
	}
	if n := mapped(t); n != 0 {
		t.Errorf("%d regions are still mapped", n)
	}
}

// TestCallerKilled kills processes that call this one.
func TestCallerKilled(t *testing.T) {
	const processes, each = 6, 16
	conns := make(chan *shared.Conn, each)
	path := serve(t, shared.Patient(shared.Options{Handler: echo{}, Heap: 1 << 20}), func(c *shared.Conn) error {
		conns <- c
		return nil
	})
	for range processes {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SHARED_TEST_PEER=caller", "SHARED_TEST_PATH="+path)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var all []*shared.Conn
		for range each {
			all = append(all, <-conns)
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond) // as above
		cmd.Process.Kill()
		for _, c := range all {
			<-c.Done()
			c.Close()
		}
		_ = cmd.Wait()
	}
	if n := mapped(t); n != 0 {
		t.Errorf("%d regions are still mapped", n)
	}
}

// callUntilKilled is the other process of TestCallerKilled.
func callUntilKilled(path string) int {
	var wg sync.WaitGroup
	for _, c := range dialAll(path, 16) {
		wg.Go(func() { _ = busy(c) })
	}
	wg.Wait()
	return 0
}
