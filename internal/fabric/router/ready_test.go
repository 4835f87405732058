package router

import (
	"context"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// invoke makes a call that waits for ready: unary, or a stream of one message each way.
func invoke(ctx context.Context, r *Router, streaming, wait bool) error {
	h := &call.Head{Method: find, Streaming: streaming, WaitForReady: wait}
	if !streaming {
		m, _, err := r.ServeUnary(ctx, h, text("ahoy"))
		m.Free()
		return err
	}
	s, err := callerOf(r).Open(ctx, h)
	if err != nil {
		return err
	}
	if err := s.Send(text("ahoy")); err == nil {
		_ = s.CloseSend()
	}
	for {
		m, err := s.Recv()
		if err == io.EOF { //nolint:errorlint // a transport returns it bare
			return nil
		}
		if err != nil {
			return err
		}
		m.Free()
	}
}

// unreachable is an endpoint to which no connection can be made at first.
func unreachable(attempts int64) *quick {
	var failed atomic.Int64
	q := newQuick(nil)
	refuse := func() error {
		if failed.Add(1) <= attempts {
			return errUnsent{}
		}
		return nil
	}
	q.fake = newFake(echoes)
	q.refuse = refuse
	q.unary = func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		if err := refuse(); err != nil {
			return nil, call.End{}, err
		}
		return echo(ctx, h, m)
	}
	return q
}

type errUnsent struct{}

func (errUnsent) Error() string { return "connection refused" }
func (errUnsent) Unsent() bool  { return true }
func (errUnsent) GRPCStatus() *status.Status {
	return status.New(codes.Unavailable, "connection refused")
}

// TestWaitForReady: a call that waits for ready waits for its service, for an endpoint, and for
// one that can be reached. Others fail at once.
func TestWaitForReady(t *testing.T) {
	nothing := func(*Router) {}
	// endpoint sets one endpoint that can be reached after so many attempts.
	endpoint := func(attempts int64) func(*Router) {
		return func(r *Router) {
			_ = r.SetService("shop.Search", Service{Endpoints: endpointsOf(unreachable(attempts))})
		}
	}
	noEndpoint := func(r *Router) { _ = r.SetService("shop.Search", Service{}) }
	tests := map[string]struct {
		before, after func(*Router)
		policies      string
		failsWith     codes.Code // of a call that does not wait
	}{
		"a service that is yet to start": {nothing, endpoint(0), "", codes.Unimplemented},
		"a service without endpoints":    {noEndpoint, endpoint(0), "", codes.Unavailable},
		"an endpoint that is restarted":  {endpoint(30), nothing, "", codes.Unavailable},
		"another endpoint that comes":    {endpoint(1 << 40), endpoint(0), "", codes.Unavailable},
		"with a policy of retries": {
			endpoint(30), nothing, "- {name: again, retry: {attempts: 2, codes: [UNAVAILABLE]}}", codes.Unavailable,
		},
		"with hedging": {
			endpoint(30), nothing, "- {name: twice, hedge: {attempts: 2, after: 1ms}}", codes.Unavailable,
		},
	}
	for name, test := range tests {
		for _, streaming := range []bool{false, true} {
			if streaming && test.policies != "" {
				continue // streams have neither
			}
			t.Run(name+map[bool]string{true: ", stream"}[streaming], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r := New(Options{})
					defer r.Close()
					if test.policies != "" {
						r.SetPolicies(policiesOf(t, test.policies))
					}
					test.before(r)
					if err := invoke(t.Context(), r, streaming, false); status.Code(err) != test.failsWith {
						t.Errorf("without waiting: %v, want %v", err, test.failsWith)
					}
					done := make(chan error, 1)
					go func() { done <- invoke(t.Context(), r, streaming, true) }()
					synctest.Wait()
					test.after(r)
					if err := <-done; err != nil {
						t.Errorf("got %v", err)
					}
				})
			})
		}
	}
}

// TestWaitForReadyEnds: the deadline ends a call that waits, with the reason; and so does the
// router's end.
func TestWaitForReadyEnds(t *testing.T) {
	for _, streaming := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := New(Options{})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begin := time.Now()
			err := invoke(ctx, r, streaming, true)
			if status.Code(err) != codes.DeadlineExceeded || time.Since(begin) != time.Second {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			if !streaming && !strings.Contains(err.Error(), "no service shop.Search") {
				t.Errorf("the reason is missing: %v", err)
			}
			done := make(chan error, 1)
			go func() { done <- invoke(t.Context(), r, streaming, true) }()
			synctest.Wait()
			r.Close()
			if err := <-done; err == nil {
				t.Error("the call survived its router")
			}
		})
	}
}
