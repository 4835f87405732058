package router

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// forwarding routes calls to f as to an endpoint behind another process.
func forwarding(t *testing.T, policies string, f *fake) *Router {
	t.Helper()
	r := routed(t, policies)
	list := endpointsOf(f)
	list[0].Forwards = true
	if err := r.SetService("shop.Search", Service{Endpoints: list}); err != nil {
		t.Fatal(err)
	}
	return r
}

// refusesOnce passes the first stream to refuse, and echoes the others.
func refusesOnce(refuse func(call.ServerStream) error) *fake {
	first := true
	return newFake(func(s call.ServerStream) error {
		if first {
			first = false
			return refuse(s)
		}
		return echoes(s)
	})
}

// after receives n messages, or all of them if n is negative, and returns err.
func after(n int, err error) func(call.ServerStream) error {
	return func(s call.ServerStream) error {
		for i := 0; i != n; i++ {
			m, failed := s.Recv()
			if failed != nil {
				break
			}
			m.Free()
		}
		return err
	}
}

// send sends messages of the given sizes, each of one letter, and the end, from another goroutine.
func send(s call.ClientStream, sizes ...int) {
	go func() {
		for i, size := range sizes {
			m := &call.Message{Data: make([]byte, size), Compressed: i%2 == 1}
			for j := range m.Data {
				m.Data[j] = byte('a' + i)
			}
			if s.Send(m) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
}

// A received is what is checked of a message.
type received struct {
	Size       int
	Letter     byte
	Compressed bool
}

func receiveAll(s call.ClientStream) (all []received, err error) {
	for {
		m, err := s.Recv()
		if err != nil {
			return all, err
		}
		all = append(all, received{len(m.Data), m.Data[0], m.Compressed})
		m.Free()
	}
}

// A stream that its callee never saw is sent again from its beginning, wherever it was refused, and
// nothing of it remains in memory.
func TestUnsentStreamIsSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		refuse func(call.ServerStream) error
		sizes  []int
	}{
		"before its messages": {after(0, errUnsent{}), []int{1, 2}},
		"between":             {after(2, errUnsent{}), []int{1, 600, 3, 40_000}},
		"a large message":     {after(1, errUnsent{}), []int{300_000, 2}},
		"after its end":       {after(-1, errUnsent{}), []int{5, 4, 300_000, 2, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := refusesOnce(test.refuse)
				r := forwarding(t, "", f)
				s := open(t.Context(), t, r)
				send(s, test.sizes...)
				got, err := receiveAll(s)
				var want []received
				for i, size := range test.sizes {
					want = append(want, received{size, byte('a' + i), i%2 == 1})
				}
				if diff := cmp.Diff(got, want); diff != "" || !errors.Is(err, io.EOF) {
					t.Errorf("ended with %v (-got +want):\n%s", err, diff)
				}
				synctest.Wait()
				if n := r.replayed.Load(); n != 0 || f.opened.Load() != 2 {
					t.Errorf("%d bytes are kept after %d attempts", n, f.opened.Load())
				}
			})
		})
	}
}

// A stream ends with the error of its only attempt if it was answered, if it exceeds the replay
// buffer, or if its endpoint can't report that it was unsent.
func TestStreamIsNotSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		refuse   func(call.ServerStream) error
		size     int
		forwards bool
	}{
		"answered": {func(s call.ServerStream) error { _ = s.SendHeader(nil); return errUnsent{} }, 1, true},
		"large":    {after(1, errUnsent{}), maxStreamReplay, true},
		"local":    {after(1, errUnsent{}), 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := refusesOnce(test.refuse)
				r := routed(t, "", f)
				if test.forwards {
					r = forwarding(t, "", f)
				}
				s := open(t.Context(), t, r)
				send(s, test.size)
				_, err := receiveAll(s)
				synctest.Wait()
				if status.Code(err) != codes.Unavailable || f.opened.Load() != 1 || r.replayed.Load() != 0 {
					t.Errorf("%v after %d attempts, %d bytes are kept", err, f.opened.Load(), r.replayed.Load())
				}
			})
		})
	}
}

// Messages beyond the bound of a router are not kept, and those that were kept are freed as soon as
// the callee answers.
func TestReplayBuffersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		f := newFake(func(s call.ServerStream) error {
			m, _ := s.Recv()
			m.Free()
			<-answer
			return echoes(s)
		})
		r := forwarding(t, "", f)
		const size = 600_000 // a stream keeps one of them
		var all []call.ClientStream
		for range 2 * maxReplay / size {
			s := open(t.Context(), t, r)
			if err := s.Send(&call.Message{Data: make([]byte, size)}); err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		synctest.Wait()
		if n := r.replayed.Load(); n > maxReplay || n < maxReplay-size-recordHeader {
			t.Errorf("%d bytes are kept, want almost %d", n, maxReplay)
		}
		close(answer)
		for _, s := range all {
			send(s, 1)
			if _, err := s.Recv(); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if n := r.replayed.Load(); n != 0 {
			t.Errorf("%d bytes are kept after the answers", n)
		}
	})
}

// A stream whose caller exceeds the replay buffer between two attempts ends with the error of the
// last one: the next would begin in the middle.
func TestRetryDoesNotBeginInTheMiddle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := refusesOnce(after(1, errDown))
		r := routed(t, "- {name: again, retry: {attempts: 4, backoff: {base: 1s}, budget: {reserve: 100}}}", f)
		s := open(t.Context(), t, r)
		if err := s.Send(text("a")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the first attempt has failed
		send(s, maxStreamReplay, 1)
		got, err := receiveAll(s)
		synctest.Wait()
		if status.Code(err) != codes.Unavailable || got != nil {
			t.Errorf("ended with %v, a later attempt has %v", err, got)
		}
	})
}
