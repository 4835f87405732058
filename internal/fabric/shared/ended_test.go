package shared_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// unsent reports whether an error says that the peer never saw the call.
func unsent(err error) bool {
	var u interface{ Unsent() bool }
	return errors.As(err, &u) && u.Unsent() && status.Code(err) == codes.Unavailable
}

// A call that could not begin because the connection has ended can be sent elsewhere: its error says
// so, and its request still belongs to the caller.
func TestCallOnEndedConnection(t *testing.T) {
	// A message occupies 32 KiB, and 1,024 of them the heap's 32 MiB.
	const size, all = 30_000, 1024
	for name, lent := range map[string]int{"unmapped": 0, "mapped": 1, "without space": all} {
		t.Run(name, func(t *testing.T) {
			client, server := pairOf(t)
			for range lent {
				m, err := client.Lend(size)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(m.Free)
			}
			freed := false
			ended := make(chan error, 1)
			unary := func() {
				m := &call.Message{Data: make([]byte, size), Release: func() { freed = true }}
				_, _, err := client.Unary(t.Context(), &call.Head{Method: "/test.Echo/Echo"}, m)
				ended <- err
			}
			if lent > 1 {
				go unary() // it waits for space until the connection ends
			}
			server.Close()
			<-client.Done()
			if lent <= 1 {
				unary()
			}
			if err := <-ended; !unsent(err) || freed {
				t.Errorf("unary: %v, freed: %v", err, freed)
			}
			if _, err := client.Open(t.Context(), &call.Head{Method: "/test.Echo/Echo", Streaming: true}); !unsent(err) {
				t.Errorf("stream: %v", err)
			}
		})
	}
}

// The context of a call may end just when the connection has ended, and its memory is unmapped.
func TestCancelOnEndedConnection(t *testing.T) {
	client, server := pairOf(t)
	server.Close()
	client.Close()
	for begin := time.Now(); shared.IsMapped(client); runtime.Gosched() {
		if time.Since(begin) > 2*time.Minute {
			t.Fatal("the memory is still mapped")
		}
	}
	shared.Cancel(client) // a fault would end the process
}
