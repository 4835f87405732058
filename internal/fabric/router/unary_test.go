package router

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

// failing answers with the errors in turn, then echoes.
func failing(errs ...error) *quick {
	var n atomic.Int64
	return newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		if i := int(n.Add(1)) - 1; i < len(errs) && errs[i] != nil {
			m.Free()
			return nil, call.End{}, errs[i]
		}
		return echo(ctx, h, m)
	})
}

// slow answers after a while.
func slow(d time.Duration) *quick {
	return newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		if !sleep(ctx, d) {
			m.Free()
			return nil, call.End{}, ctx.Err()
		}
		return echo(ctx, h, m)
	})
}

var errDown = status.Error(codes.Unavailable, "down")

func TestUnary(t *testing.T) {
	for name, tr := range map[string]call.Transport{"quick": newQuick(echo), "streams only": newFake(echoes)} {
		t.Run(name, func(t *testing.T) {
			r := routed(t, "", tr)
			got, err := ask(t.Context(), r, "hello")
			if err != nil || got != "hello" {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestNobodyThere(t *testing.T) {
	r := routed(t, "")
	if _, err := ask(t.Context(), r, "x"); status.Code(err) != codes.Unavailable {
		t.Errorf("without endpoints: %v", err)
	}
	r.RemoveService("shop.Search")
	if _, err := ask(t.Context(), r, "x"); status.Code(err) != codes.Unimplemented {
		t.Errorf("without a service: %v", err)
	}
}

func TestBadServices(t *testing.T) {
	r := New(Options{})
	for name, s := range map[string]Service{
		"no ID":        {Endpoints: []Endpoint{{Transport: newQuick(echo)}}},
		"no transport": {Endpoints: []Endpoint{{Endpoint: balance.Endpoint{ID: "a"}}}},
		"balance":      {Balance: balance.Config{Method: "best"}},
	} {
		if err := r.SetService("s", s); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	r.Close()
	r.Close()
	if err := r.SetService("s", Service{}); err == nil {
		t.Error("a closed router took a service")
	}
}

// The request of a call is freed once, however it goes.
func TestRequestsAreFreed(t *testing.T) {
	frees := func(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
		m.Free()
		return nil, call.End{}, errDown
	}
	for name, test := range map[string]struct {
		policies   string
		transports []call.Transport
	}{
		"plain":     {"", []call.Transport{newQuick(frees)}},
		"streams":   {"", []call.Transport{newFake(echoesFreed)}},
		"refused":   {"- {name: no, access: {default: deny, rules: [{allow: {tenants: [gold]}}]}}", []call.Transport{newQuick(frees)}},
		"retried":   {"- {name: again, retry: {attempts: 3, backoff: {base: 1ms}}}", []call.Transport{newQuick(frees)}},
		"hedged":    {"- {name: twice, hedge: {attempts: 3, after: 1ms, codes: [UNAVAILABLE]}}", []call.Transport{newQuick(frees)}},
		"nobody":    {"", nil},
		"mirrored":  {"- {name: copy, mirror: {to: shop.Next}}", []call.Transport{newQuick(frees)}},
		"not there": {"- {name: again, retry: {attempts: 2}}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := routed(t, test.policies, test.transports...)
			if err := r.SetService("shop.Next", Service{Endpoints: endpointsOf(test.transports...)}); err != nil {
				t.Fatal(err)
			}
			var freed atomic.Int64
			m := text("x")
			m.Release = func() { freed.Add(1) }
			response, _, _ := r.ServeUnary(t.Context(), &call.Head{Method: find}, m)
			response.Free()
			r.Close()
			if got := freed.Load(); got != 1 {
				t.Errorf("freed %d times", got)
			}
		})
	}
}

func echoesFreed(s call.ServerStream) error {
	m, err := s.Recv()
	if err != nil {
		return err
	}
	m.Free()
	return s.Send(text("ok"))
}

func TestRetry(t *testing.T) {
	const policies = "- {name: again, retry: {attempts: 3, codes: [UNAVAILABLE], backoff: {base: 10ms, jitter: 0}, budget: {reserve: 100}}}"
	invalid := status.Error(codes.InvalidArgument, "no")
	for name, test := range map[string]struct {
		errs  []error
		code  codes.Code
		calls int64
	}{
		"first is good":   {nil, codes.OK, 1},
		"third is good":   {[]error{errDown, errDown}, codes.OK, 3},
		"too often":       {[]error{errDown, errDown, errDown, errDown}, codes.Unavailable, 3},
		"not to be tried": {[]error{invalid}, codes.InvalidArgument, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := failing(test.errs...)
				r := routed(t, policies, q)
				_, err := ask(t.Context(), r, "x")
				if status.Code(err) != test.code || q.calls.Load() != test.calls {
					t.Errorf("%v after %d calls, want %v after %d", err, q.calls.Load(), test.code, test.calls)
				}
			})
		})
	}
}

// TestRetryWithoutEndpoint: attempts bridge a moment without any endpoint, as streams' do.
func TestRetryWithoutEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routed(t, "- {name: again, retry: {attempts: 3, backoff: {base: 10ms, jitter: 0}, budget: {reserve: 100}}}")
		if _, err := ask(t.Context(), r, "x"); status.Code(err) != codes.Unavailable {
			t.Errorf("without an endpoint: %v", err)
		}
		q := newQuick(echo)
		time.AfterFunc(15*time.Millisecond, func() {
			if err := r.SetService("shop.Search", Service{Endpoints: endpointsOf(q)}); err != nil {
				t.Error(err)
			}
		})
		begin := time.Now()
		if _, err := ask(t.Context(), r, "x"); err != nil || q.calls.Load() != 1 || time.Since(begin) != 30*time.Millisecond {
			t.Errorf("%v after %v and %d calls", err, time.Since(begin), q.calls.Load())
		}
	})
}

// Another attempt goes to another endpoint, with its number, and the budget ends them.
func TestRetryGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heads []int
		bad := newQuick(func(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
			heads = append(heads, h.Attempt)
			m.Free()
			return nil, call.End{}, errDown
		})
		other := newQuick(bad.unary)
		r := routed(t, "- {name: again, retry: {attempts: 2, backoff: {base: 1ms}, budget: {reserve: 100}}}", bad, other)
		_, err := ask(t.Context(), r, "x")
		if status.Code(err) != codes.Unavailable || bad.calls.Load() != 1 || other.calls.Load() != 1 {
			t.Errorf("%v, %d and %d calls", err, bad.calls.Load(), other.calls.Load())
		}
		if diff := cmp.Diff(heads, []int{0, 1}); diff != "" {
			t.Errorf("attempts (-got +want):\n%s", diff)
		}
	})
}

func TestPushback(t *testing.T) {
	for name, test := range map[string]struct {
		says  string
		calls int64
		took  time.Duration
	}{
		"later": {"2000", 2, 2 * time.Second},
		"never": {"-1", 1, 0},
		"words": {"soon", 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQuick(nil)
				q.unary = func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
					if q.calls.Load() > 1 {
						return echo(ctx, h, m)
					}
					m.Free()
					return nil, call.End{Trailer: metadata.Pairs("grpc-retry-pushback-ms", test.says)}, errDown
				}
				r := routed(t, "- {name: again, retry: {attempts: 3, backoff: {base: 10ms}, budget: {reserve: 100}}}", q)
				began := time.Now()
				_, _ = ask(t.Context(), r, "x")
				if took := time.Since(began); took != test.took || q.calls.Load() != test.calls {
					t.Errorf("%d calls in %v, want %d in %v", q.calls.Load(), took, test.calls, test.took)
				}
			})
		})
	}
}

type unsentError struct{ error }

func (unsentError) Unsent() bool                 { return true }
func (u unsentError) GRPCStatus() *status.Status { return status.Convert(u.error) }

// What was not sent goes to another endpoint without a policy, a few times.
func TestUnsentGoesElsewhere(t *testing.T) {
	refusing := func() *fake {
		f := newFake(echoes)
		f.refuse = func() error { return errDown }
		return f
	}
	r := routed(t, "", refusing(), failing(unsentError{errDown}, unsentError{errDown}, unsentError{errDown}), newQuick(echo))
	for range 20 {
		if got, err := ask(t.Context(), r, "hello"); err != nil || got != "hello" {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	r = routed(t, "", refusing(), refusing())
	if _, err := ask(t.Context(), r, "x"); status.Code(err) != codes.Unavailable {
		t.Errorf("with everybody refusing: %v", err)
	}
}

func TestHedge(t *testing.T) {
	const policies = "- {name: twice, hedge: {attempts: 3, after: 10ms, codes: [UNAVAILABLE], budget: {reserve: 100}}}"
	for name, test := range map[string]struct {
		transports []call.Transport
		code       codes.Code
		took       time.Duration
		hedges     uint64
	}{
		"first is quick":     {[]call.Transport{slow(time.Millisecond), slow(time.Hour)}, codes.OK, time.Millisecond, 0},
		"second wins":        {[]call.Transport{slow(time.Hour), slow(time.Millisecond)}, codes.OK, 11 * time.Millisecond, 1},
		"failure sends next": {[]call.Transport{failing(errDown), slow(time.Millisecond)}, codes.OK, time.Millisecond, 1},
		"all fail":           {[]call.Transport{failing(errDown, errDown, errDown)}, codes.Unavailable, 0, 2},
		"failure that ends":  {[]call.Transport{failing(status.Error(codes.NotFound, "")), slow(0)}, codes.NotFound, 0, 0},
		"nobody":             {nil, codes.Unavailable, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := New(Options{})
				defer r.Close()
				// The last one first, then what it excludes: the order of the list.
				set := Service{Endpoints: endpointsOf(test.transports...)}
				for i := range set.Endpoints {
					set.Endpoints[i].Node = []string{"here", "there"}[i]
				}
				set.Balance.Locality.Node = "here"
				if err := r.SetService("shop.Search", set); err != nil {
					t.Fatal(err)
				}
				r.SetPolicies(policiesOf(t, policies))
				began := time.Now()
				_, err := ask(t.Context(), r, "x")
				if took := time.Since(began); status.Code(err) != test.code || took != test.took {
					t.Errorf("%v after %v, want %v after %v", err, took, test.code, test.took)
				}
				if got := r.stats.hedges.Load(); got != test.hedges {
					t.Errorf("%d hedges, want %d", got, test.hedges)
				}
			})
		})
	}
}

// The losers of a hedge are cancelled at once, and their answers are freed.
func TestHedgeCancelsLosers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var cancelled, freed atomic.Int64
		q := newQuick(nil)
		q.unary = func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
			m.Free()
			if q.calls.Load() < 3 {
				<-ctx.Done()
				cancelled.Add(1)
			}
			return &call.Message{Release: func() { freed.Add(1) }}, call.End{}, nil
		}
		r := routed(t, "- {name: twice, hedge: {attempts: 3, after: 10ms, budget: {reserve: 100}}}", q)
		response, _, err := r.ServeUnary(t.Context(), &call.Head{Method: find}, text("x"))
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if cancelled.Load() != 2 || freed.Load() != 2 {
			t.Errorf("%d cancelled, %d freed, want 2 and 2", cancelled.Load(), freed.Load())
		}
		response.Free()
	})
}

func TestTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var deadline time.Time
		q := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
			m.Free()
			deadline = h.Deadline
			<-ctx.Done()
			return nil, call.End{}, ctx.Err()
		})
		r := routed(t, "- {name: limit, timeout: 3s}", q)
		began := time.Now()
		_, err := ask(t.Context(), r, "x")
		if status.Code(err) != codes.DeadlineExceeded || time.Since(began) != 3*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if !deadline.Equal(began.Add(3 * time.Second)) {
			t.Errorf("the callee's deadline is %v", deadline.Sub(began))
		}
	})
}

// An injected fault comes after the delay that was injected with it.
func TestLateFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQuick(echo)
		r := routed(t, "- {name: bad, fault: {delay: 2s, code: DATA_LOSS}}", q)
		began := time.Now()
		_, err := ask(t.Context(), r, "x")
		if status.Code(err) != codes.DataLoss || time.Since(began) != 2*time.Second || q.calls.Load() != 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// An injected fault comes no later than the call's timeout.
func TestFaultWithinTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routed(t, "- {name: limit, timeout: 1s}\n- {name: bad, fault: {delay: 1h, code: DATA_LOSS}}", newQuick(echo))
		began := time.Now()
		_, err := ask(t.Context(), r, "x")
		if status.Code(err) != codes.DeadlineExceeded || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

// Cancelling reaches the callee, whatever the call is at.
func TestCancel(t *testing.T) {
	for name, policies := range map[string]string{
		"callee":   "",
		"delay":    "- {name: wait, fault: {delay: 1h}}",
		"back-off": "- {name: again, retry: {attempts: 5, backoff: {base: 1h, max: 2h}, budget: {reserve: 100}}}",
		"hedge":    "- {name: twice, hedge: {attempts: 3, after: 10ms, budget: {reserve: 100}}}",
		"link":     "- {name: far, link: {latency: 1h}}",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := slow(time.Hour)
				if name == "back-off" {
					q = failing(errDown)
				}
				r := routed(t, policies, q)
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				began := time.Now()
				_, err := ask(ctx, r, "x")
				want := codes.Canceled
				if name == "back-off" {
					want = codes.Unavailable // what the attempt said
				}
				if status.Code(err) != want || time.Since(began) != time.Second {
					t.Errorf("%v after %v", err, time.Since(began))
				}
			})
		})
	}
}

// A unary call says so before it waits, and does not when it need not.
func TestYield(t *testing.T) {
	for name, test := range map[string]struct {
		policies string
		want     int
	}{
		"nothing":  {"", 0},
		"delay":    {"- {name: wait, fault: {delay: 1s}}", 1},
		"back-off": {"- {name: again, retry: {attempts: 2, backoff: {base: 1s}, budget: {reserve: 100}}}", 1},
		"link":     {"- {name: far, link: {latency: 1s}}", 2},
		"hedge":    {"- {name: twice, hedge: {attempts: 3, after: 10ms}}", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				yields := 0
				q := newQuick(echo)
				if name == "back-off" {
					q = failing(errDown)
				}
				r := routedWith(t, Options{Yield: func(context.Context) { yields++ }}, test.policies, q)
				if _, err := ask(t.Context(), r, "x"); err != nil || yields != test.want {
					t.Errorf("%d yields, want %d; %v", yields, test.want, err)
				}
			})
		})
	}
}

// A link holds up what passes: half of its latency is not enough.
func TestLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routed(t, "- {name: far, link: {latency: 100ms, bandwidth: 8kbit}}", newQuick(echo))
		began := time.Now()
		if _, err := ask(t.Context(), r, string(make([]byte, 1000))); err != nil {
			t.Fatal(err)
		}
		// 1000 bytes at 1000 bytes a second, and the latency, each way.
		if took := time.Since(began); took != 2200*time.Millisecond {
			t.Errorf("took %v, want 2.2s", took)
		}
	})
}

func TestRewrite(t *testing.T) {
	q := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		if got := h.Metadata["x-from"]; !slices.Equal(got, []string{"router"}) {
			t.Errorf("x-from is %q", got)
		}
		return echo(ctx, h, m)
	})
	const policies = `
- name: names
  rewrite:
    metadata: {set: {x-from: '"router"'}}
    header: {set: {x-head: '"h"'}}
    trailer: {set: {x-tail: '"t"'}}
`
	r := routed(t, policies, q)
	h := &call.Head{Method: find, Metadata: metadata.Pairs("x-from", "caller")}
	_, end, err := r.ServeUnary(t.Context(), h, text("x"))
	if err != nil {
		t.Fatal(err)
	}
	want := call.End{Header: metadata.Pairs("x-head", "h"), Trailer: metadata.Pairs("x-tail", "t")}
	if diff := cmp.Diff(end, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if got := h.Metadata.Get("x-from"); !slices.Equal(got, []string{"caller"}) {
		t.Errorf("the caller's own head was changed: %q", got)
	}
}

// A policy that looks at the request sees what the callee gets, even when the caller
// writes it anew meanwhile; one that does not leaves it where it is.
func TestInspectedIsCopied(t *testing.T) {
	data := []byte("x")
	q := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		data[0] = 'y'
		return echo(ctx, h, m)
	})
	r := routed(t, "", q)
	m, _, err := r.ServeUnary(t.Context(), &call.Head{Method: find}, &call.Message{Data: data})
	if err != nil || string(m.Data) != "y" {
		t.Errorf("without a look: %q, %v", m.Data, err)
	}
	c := newExchange(r)
	c.Head = &call.Head{}
	c.request = &call.Message{Data: data}
	seen, err := c.payload()
	data[0] = 'z'
	if err != nil || string(seen) != "y" || string(c.request.Data) != "y" {
		t.Errorf("with a look: seen %q, sent %q, %v", seen, c.request.Data, err)
	}
}

func ExampleRouter() {
	r := New(Options{})
	defer r.Close()
	back := newQuick(echo) // a transport: fabric/shared, fabric/remote or fabric/plain
	err := r.SetService("shop.Search", Service{
		Endpoints: []Endpoint{{Endpoint: balance.Endpoint{ID: "search-1"}, Transport: back}},
		Balance:   balance.Config{Method: balance.LeastRequests},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	response, _, err := r.ServeUnary(context.Background(), &call.Head{Method: find}, text("shoes"))
	fmt.Println(string(response.Data), err)
	// Output: shoes <nil>
}
