package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// open begins a streaming call to a router.
func open(ctx context.Context, t testing.TB, r *Router) call.ClientStream {
	t.Helper()
	s, err := callerOf(r).Open(ctx, &call.Head{Method: find, Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rest receives until the end.
func rest(s call.ClientStream) (got []string, err error) {
	for {
		m, err := s.Recv()
		if err != nil {
			return got, err
		}
		got = append(got, string(m.Data))
		m.Free()
	}
}

// All kinds of streams pass: one word at a time, all before the first answer, many
// answers to one, none at all.
func TestStreams(t *testing.T) {
	collects := func(s call.ServerStream) error {
		all := ""
		for {
			m, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return s.Send(text(all))
			}
			if err != nil {
				return err
			}
			all += string(m.Data)
		}
	}
	counts := func(s call.ServerStream) error {
		if _, err := s.Recv(); err != nil {
			return err
		}
		for i := range 3 {
			if err := s.Send(text(fmt.Sprint(i))); err != nil {
				return err
			}
		}
		return nil
	}
	for name, test := range map[string]struct {
		serve    func(call.ServerStream) error
		requests []string
		want     []string
	}{
		"echo":    {echoes, []string{"a", "b", "c"}, []string{"a", "b", "c"}},
		"collect": {collects, []string{"a", "b", "c"}, []string{"abc"}},
		"count":   {counts, []string{"a"}, []string{"0", "1", "2"}},
		"nothing": {collects, nil, []string{""}},
	} {
		for policed, policies := range map[string]string{
			"": "", "/policies": "- {name: again, retry: {attempts: 3}}\n- {name: far, link: {latency: 1ms}}\n- {name: limit, timeout: 1h}",
		} {
			t.Run(name+policed, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := open(t.Context(), t, routed(t, policies, newFake(test.serve)))
					go func() {
						for _, m := range test.requests {
							_ = s.Send(text(m))
						}
						_ = s.CloseSend()
					}()
					got, err := rest(s)
					if diff := cmp.Diff(got, test.want); diff != "" || !errors.Is(err, io.EOF) {
						t.Errorf("ended with %v (-got +want):\n%s", err, diff)
					}
				})
			})
		}
	}
}

// What belongs to the call comes through: head, header, trailer, status.
func TestStreamMetadata(t *testing.T) {
	f := newFake(func(s call.ServerStream) error {
		_ = s.SendHeader(metadata.Join(metadata.Pairs("x-head", "1"), s.Head().Metadata))
		s.SetTrailer(metadata.Pairs("x-tail", "2"))
		return status.Error(codes.AlreadyExists, "twice")
	})
	const rewriting = `
- name: names
  rewrite:
    metadata: {set: {x-from: '"router"'}}
    header: {set: {x-more: '"h"'}}
    trailer: {set: {x-more: '"t"'}}
`
	for name, test := range map[string]struct {
		policies        string
		header, trailer metadata.MD
	}{
		"plain":     {"", metadata.Pairs("x-head", "1"), metadata.Pairs("x-tail", "2")},
		"rewritten": {rewriting, metadata.Pairs("x-head", "1", "x-from", "router", "x-more", "h"), metadata.Pairs("x-tail", "2", "x-more", "t")},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t.Context(), t, routed(t, test.policies, f))
			header, err := s.Header()
			if err != nil {
				t.Fatal(err)
			}
			_, err = rest(s)
			if status.Code(err) != codes.AlreadyExists || status.Convert(err).Message() != "twice" {
				t.Errorf("ended with %v", err)
			}
			if diff := cmp.Diff([]metadata.MD{header, s.Trailer()}, []metadata.MD{test.header, test.trailer}); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

// A header comes before the first message does, and a call of one message that came
// as a stream is served too.
func TestSingleAsStream(t *testing.T) {
	q := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		r, _, err := echo(ctx, h, m)
		return r, call.End{Header: metadata.Pairs("x-head", "1"), Trailer: metadata.Pairs("x-tail", "2")}, err
	})
	r := routed(t, "", q)
	s, err := callerOf(r).Open(t.Context(), &call.Head{Method: find})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Send(text("one")); err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	got, err := rest(s)
	header, _ := s.Header()
	if diff := cmp.Diff([]any{got, header, s.Trailer()}, []any{[]string{"one"}, metadata.Pairs("x-head", "1"), metadata.Pairs("x-tail", "2")}); diff != "" || !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v (-got +want):\n%s", err, diff)
	}
	s, err = callerOf(r).Open(t.Context(), &call.Head{Method: find})
	if err != nil {
		t.Fatal(err)
	}
	_ = s.CloseSend()
	if _, err := rest(s); status.Code(err) != codes.Internal {
		t.Errorf("without a request: %v", err)
	}
}

// A callee that does not read stops its caller after a few messages, and the other
// way round: nothing is piled up.
func TestStreamsAreNotBuffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent, answered atomic.Int64
		f := newFake(func(s call.ServerStream) error {
			for s.Send(text("x")) == nil {
				answered.Add(1)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		s := open(ctx, t, routed(t, "", f))
		go func() {
			for s.Send(text("x")) == nil {
				sent.Add(1)
			}
		}()
		synctest.Wait()
		if sent.Load() > 2 || answered.Load() > 2 {
			t.Errorf("%d requests and %d answers are under way", sent.Load(), answered.Load())
		}
		cancel()
	})
}

// A stream that its callee never answered is tried again, with all that was sent.
func TestStreamRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		f := newFake(func(s call.ServerStream) error {
			if tries.Add(1) < 3 {
				m, _ := s.Recv()
				m.Free()
				return errDown
			}
			return echoes(s)
		})
		r := routed(t, "- {name: again, retry: {attempts: 4, backoff: {base: 1s}, budget: {reserve: 100}}}", f)
		s := open(t.Context(), t, r)
		var freed atomic.Int64
		for _, word := range []string{"a", "b"} {
			m := text(word)
			m.Release = func() { freed.Add(1) }
			if err := s.Send(m); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		time.Sleep(10 * time.Second)
		go func() {
			_ = s.Send(text("c"))
			_ = s.CloseSend()
		}()
		got, err := rest(s)
		if diff := cmp.Diff(got, []string{"a", "b", "c"}); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v (-got +want):\n%s", err, diff)
		}
		synctest.Wait()
		if tries.Load() != 3 || freed.Load() != 2 {
			t.Errorf("%d tries, %d requests freed", tries.Load(), freed.Load())
		}
	})
}

// What is kept for another attempt is freed with the call.
func TestKeptIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(s call.ServerStream) error {
			m, err := s.Recv()
			m.Free()
			return err
		})
		s := open(t.Context(), t, routed(t, "- {name: again, retry: {attempts: 2}}", f))
		freed := 0
		m := text("x")
		m.Release = func() { freed++ }
		if err := s.Send(m); err != nil {
			t.Fatal(err)
		}
		if _, err := rest(s); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		synctest.Wait()
		if freed != 1 {
			t.Errorf("freed %d times", freed)
		}
	})
}

// Messages follow each other on a link: it costs its latency once, not for each, and
// its bandwidth; and what is under way is bounded.
func TestStreamOverLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routed(t, "- {name: far, link: {latency: 1s, jitter: 500ms, bandwidth: 8kbit}}", newFake(echoes))
		s := open(t.Context(), t, r)
		began := time.Now()
		var want []string
		go func() {
			for i := range 20 {
				m := text(fmt.Sprint("message ", i))
				m.Data = append(m.Data, make([]byte, 100-len(m.Data))...)
				_ = s.Send(m)
			}
			_ = s.CloseSend()
		}()
		for i := range 20 {
			want = append(want, fmt.Sprint("message ", i))
		}
		got, err := rest(s)
		for i := range got {
			got[i] = string(bytes.TrimRight([]byte(got[i]), "\x00"))
		}
		if diff := cmp.Diff(got, want); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v (-got +want):\n%s", err, diff)
		}
		// 2000 bytes at 1000 bytes a second, and 1 to 1.5 s each way.
		if took := time.Since(began); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("took %v, want 4 to 6 s", took)
		}
	})
}

func TestLinkIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routed(t, "- {name: far, link: {latency: 1h}}", newFake(echoes))
		ctx, cancel := context.WithCancel(t.Context())
		for size, most := range map[int]int64{1: maxInTransit + 1, 300 << 10: 4} {
			s := open(ctx, t, r)
			var sent atomic.Int64
			go func() {
				for s.Send(&call.Message{Data: make([]byte, size)}) == nil {
					sent.Add(1)
				}
			}()
			synctest.Wait()
			if got := sent.Load(); got != most {
				t.Errorf("%d messages of %d bytes are under way, want %d", got, size, most)
			}
		}
		cancel()
	})
}

// One that was answered, or whose requests are too large to keep, is not.
func TestStreamNoRetry(t *testing.T) {
	for name, test := range map[string]struct {
		serve func(call.ServerStream) error
		size  int
	}{
		"header": {func(s call.ServerStream) error { _ = s.SendHeader(nil); return errDown }, 1},
		"answer": {func(s call.ServerStream) error { _ = s.Send(text("x")); return errDown }, 1},
		"large":  {func(s call.ServerStream) error { _, _ = s.Recv(); return errDown }, maxStreamReplay},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(test.serve)
				r := routed(t, "- {name: again, retry: {attempts: 4, backoff: {base: 1s}, budget: {reserve: 100}}}", f)
				s := open(t.Context(), t, r)
				_ = s.Send(&call.Message{Data: make([]byte, test.size)})
				if _, err := rest(s); status.Code(err) != codes.Unavailable || f.opened.Load() != 1 {
					t.Errorf("%v after %d tries", err, f.opened.Load())
				}
			})
		})
	}
}

func TestStreamOpensElsewhere(t *testing.T) {
	dead := newFake(echoes)
	dead.Close()
	r := routed(t, "", dead, newFake(echoes))
	for range 4 {
		s := open(t.Context(), t, r)
		_ = s.CloseSend()
		if _, err := rest(s); !errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
	}
}

// Cancelling, and a caller's death, reach the callee at once, and nothing is left.
func TestStreamCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(s call.ServerStream) error {
			<-s.Context().Done()
			return s.Context().Err()
		})
		r := routed(t, "", f)
		ctx, cancel := context.WithCancel(t.Context())
		s := open(ctx, t, r)
		synctest.Wait()
		if f.opened.Load() != 1 || f.ended.Load() != 0 {
			t.Fatal("the call has not begun")
		}
		cancel()
		_, err := rest(s)
		synctest.Wait()
		if status.Code(err) != codes.Canceled || f.ended.Load() != 1 {
			t.Errorf("%v, %d ended", err, f.ended.Load())
		}
	})
}

func TestStreamTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(s call.ServerStream) error { <-s.Context().Done(); return s.Context().Err() })
		s := open(t.Context(), t, routed(t, "- {name: limit, timeout: 3s}", f))
		began := time.Now()
		if _, err := rest(s); status.Code(err) != codes.DeadlineExceeded || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Closing the router ends its streams and leaves nothing.
func TestCloseEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(echoes)
		r := routed(t, "", f)
		s := open(t.Context(), t, r)
		synctest.Wait()
		r.Close()
		if _, err := rest(s); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("ended with %v", err)
		}
	})
}
