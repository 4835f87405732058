package router

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// A call that its callee never saw goes to another endpoint, however many endpoints are stopping, and
// whatever the policies grant.
func TestAllButOneEndpointHaveLeft(t *testing.T) {
	const endpoints = 12
	left := func() call.Transport {
		q := newQuick(func(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error) {
			return nil, call.End{}, unsentError{errDown}
		})
		q.refuse = func() error { return unsentError{errDown} }
		return q
	}
	for name, policies := range map[string]string{
		"no policy":   "",
		"retries":     "- {name: again, retry: {attempts: 2, codes: [INTERNAL]}}",
		"hedging":     "- {name: twice, hedge: {attempts: 2, after: 10ms}}",
		"hedge spent": "- {name: twice, hedge: {attempts: 2, after: 10ms, budget: {ratio: 0%, reserve: 1}}}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var transports []call.Transport
				for range endpoints - 1 {
					transports = append(transports, left())
				}
				good := newQuick(echo)
				good.serve = echoes
				r := routed(t, policies, append(transports, good)...)
				for range 20 {
					released := 0
					m, _, err := r.ServeUnary(t.Context(), &call.Head{Method: find}, &call.Message{Data: []byte("ahoy"), Release: func() { released++ }})
					if err != nil || string(m.Data) != "ahoy" {
						t.Fatalf("a unary call: %v", err)
					}
					m.Free()
					synctest.Wait()
					if released != 1 {
						t.Errorf("the request was released %d times", released)
					}
					s := open(t.Context(), t, r)
					_ = s.CloseSend()
					if _, err := rest(s); !errors.Is(err, io.EOF) {
						t.Fatalf("a stream: %v", err)
					}
				}
			})
		})
	}
}

// A request in the caller's memory goes to another endpoint too if the transport has streams only.
func TestUnsentRequestIsKept(t *testing.T) {
	refusing := newFake(echoes)
	refusing.refuse = func() error { return errDown }
	r := routed(t, "", refusing, newQuick(echo))
	for range 20 {
		m, _, err := r.ServeUnary(t.Context(), &call.Head{Method: find}, &call.Message{Data: []byte("ahoy"), Release: func() {}})
		if err != nil {
			t.Fatal(err)
		}
		m.Free()
	}
}

// Without any endpoint that takes a call the call ends, with the error of the last attempt.
func TestAllEndpointsHaveLeft(t *testing.T) {
	for name, test := range map[string]struct {
		policies string
		attempts int64
	}{
		"no policy": {"", 3 + maxRepeats},
		"hedging":   {"- {name: twice, hedge: {attempts: 2, after: 10ms}}", 3 + maxRepeats + 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				down := newQuick(func(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error) {
					return nil, call.End{}, unsentError{errDown}
				})
				r := routed(t, test.policies, down, down, down)
				_, err := ask(t.Context(), r, "x")
				if status.Code(err) != codes.Unavailable || status.Convert(err).Message() != "down" {
					t.Errorf("ended with %v", err)
				}
				if n := down.calls.Load(); n != test.attempts {
					t.Errorf("%d attempts at 3 endpoints", n)
				}
			})
		})
	}
}
