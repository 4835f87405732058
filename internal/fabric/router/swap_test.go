package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

// A transport that ends calls begun after it was released: what the router promises
// not to do.
type guarded struct {
	call.Transport
	released atomic.Bool
	calls    atomic.Int64
	late     *atomic.Int64
}

func (g *guarded) Unary(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	g.calls.Add(1)
	defer g.calls.Add(-1)
	if g.released.Load() {
		g.late.Add(1)
	}
	response, end, err := echo(ctx, h, m)
	if g.released.Load() {
		g.late.Add(1)
	}
	return response, end, err
}

func (g *guarded) Open(ctx context.Context, h *call.Head) (call.ClientStream, error) {
	if g.released.Load() {
		g.late.Add(1)
	}
	return g.Transport.Open(ctx, h)
}

// Policies and endpoints change while calls flow: no call is lost, none is at an
// endpoint that was released, and each endpoint is released once.
func TestSwapsUnderLoad(t *testing.T) {
	r := New(Options{})
	var made, released, late atomic.Int64
	endpoint := func() Endpoint {
		g := &guarded{Transport: newFake(echoes), late: &late}
		e := Endpoint{Endpoint: balance.Endpoint{ID: fmt.Sprint("e", made.Add(1))}, Transport: g}
		e.Released = func() {
			if g.released.Swap(true) || g.calls.Load() != 0 {
				late.Add(1)
			}
			released.Add(1)
		}
		return e
	}
	set := Service{Endpoints: []Endpoint{endpoint(), endpoint()}}
	if err := r.SetService("shop.Search", set); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	var calls atomic.Int64
	for range 4 {
		wg.Go(func() { flow1(t, r, stop, &calls) })
	}
	wg.Go(func() { flowStreams(t, r, stop, &calls) })
	random := rand.New(rand.NewPCG(1, 2))
	methods := []balance.Method{balance.RoundRobin, balance.LeastRequests, balance.Weighted}
	for i := range 500 {
		r.SetPolicies(policiesOf(t, fmt.Sprintf(`
- {name: limit, timeout: %dh}
- {name: again, retry: {attempts: %d}}
- {name: most, concurrency: {limit: 1000}}`, 1+i%5, 2+i%3)))
		set.Endpoints = append(set.Endpoints[random.IntN(len(set.Endpoints)):], endpoint())
		set.Balance.Method = methods[i/10%3]
		if err := r.SetService("shop.Search", set); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	r.Close()
	if late.Load() != 0 || released.Load() != made.Load() || calls.Load() == 0 {
		t.Errorf("%d calls; %d of %d endpoints released; %d calls at released ones", calls.Load(), released.Load(), made.Load(), late.Load())
	}
}

func flow1(t *testing.T, r *Router, stop <-chan struct{}, calls *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		if got, err := ask(context.Background(), r, "x"); err != nil || got != "x" {
			t.Errorf("call %d: %q, %v", calls.Load(), got, err)
			return
		}
		calls.Add(1)
	}
}

func flowStreams(t *testing.T, r *Router, stop <-chan struct{}, calls *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		s := open(context.Background(), t, r)
		for range 3 {
			if err := s.Send(text("x")); err != nil {
				t.Error(err)
			}
			m, err := s.Recv()
			if err != nil {
				t.Error(err)
				return
			}
			m.Free()
		}
		_ = s.CloseSend()
		if _, err := rest(s); !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		calls.Add(1)
	}
}

// A removed endpoint is released when its last call has ended, not before.
func TestRemovedEndpointFinishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(echoes)
		r := New(Options{})
		defer r.Close()
		released := 0
		set := Service{Endpoints: endpointsOf(f)}
		set.Endpoints[0].Released = func() { released++ }
		if err := r.SetService("shop.Search", set); err != nil {
			t.Fatal(err)
		}
		s := open(t.Context(), t, r)
		synctest.Wait()
		r.RemoveService("shop.Search")
		if released != 0 {
			t.Fatal("released under a call")
		}
		if err := s.Send(text("still there")); err != nil {
			t.Fatal(err)
		}
		_ = s.CloseSend()
		if got, err := rest(s); len(got) != 1 || !errors.Is(err, io.EOF) {
			t.Errorf("got %q, %v", got, err)
		}
		synctest.Wait()
		if released != 1 {
			t.Errorf("released %d times", released)
		}
	})
}

// No call begins at an endpoint that was removed, and it is released once, when those
// that had begun are over.
func TestEndpointLife(t *testing.T) {
	for name, begun := range map[string]int{"idle": 0, "busy": 2} {
		t.Run(name, func(t *testing.T) {
			released := 0
			e := newEndpoint(Endpoint{Transport: newQuick(echo), Released: func() { released++ }})
			e.stop = func() {}
			for range begun {
				if !e.acquire() {
					t.Fatal("refused before it was removed")
				}
			}
			e.remove()
			if e.acquire() {
				t.Error("a call began after it was removed")
			}
			for i := range begun {
				if released != 0 {
					t.Errorf("released with %d calls left", begun-i)
				}
				e.release()
			}
			if e.acquire() || released != 1 {
				t.Errorf("released %d times", released)
			}
		})
	}
}

// A request that is sent several times is freed after the last, not before.
func TestCopier(t *testing.T) {
	freed := 0
	m := text("x")
	m.Release = func() { freed++ }
	c := newSharedMessage(m)
	first, second := c.acquire(), c.acquire()
	c.release()
	first.Free()
	first.Free()
	if freed != 0 {
		t.Error("freed while there is another")
	}
	if second.Free(); freed != 1 {
		t.Errorf("freed %d times", freed)
	}
}

// What the balancer knows outlives a change of the endpoints.
func TestServiceKeepsItsPicker(t *testing.T) {
	r := New(Options{})
	defer r.Close()
	q := newQuick(echo)
	set := Service{Endpoints: endpointsOf(q, newQuick(echo))}
	for range 2 {
		if err := r.SetService("shop.Search", set); err != nil {
			t.Fatal(err)
		}
		if _, err := ask(t.Context(), r, "x"); err != nil {
			t.Fatal(err)
		}
	}
	picks := uint64(0)
	for _, s := range r.Endpoints("shop.Search") {
		picks += s.Picks
	}
	if picks != 2 {
		t.Errorf("%d picks are known, want 2", picks)
	}
}

// Whatever dies when: each call ends exactly once, with a status that tells, and
// nothing of it is left.
func TestDeathAtAnyTime(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) { deathAt(t, seed) })
	}
}

func deathAt(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 3))
	backs := []*fake{newFake(jittery(seed)), newFake(jittery(seed + 1))}
	r := New(Options{Random: seeded(seed)})
	if err := r.SetService("shop.Search", Service{Endpoints: endpointsOf(backs[0], backs[1])}); err != nil {
		t.Fatal(err)
	}
	if seed%3 == 0 {
		r.SetPolicies(policiesOf(t, "- {name: again, retry: {attempts: 3, backoff: {base: 1ms}, budget: {reserve: 100}}}"))
	}
	if seed%3 == 1 {
		r.SetPolicies(policiesOf(t, "- {name: twice, hedge: {attempts: 2, after: 1ms, budget: {reserve: 100}}}\n- {name: far, link: {latency: 1ms}}"))
	}
	front := callerOf(r)
	ctx, cancel := context.WithCancel(t.Context())
	after := func(do func()) { time.AfterFunc(time.Duration(random.IntN(10_000))*time.Microsecond, do) }
	switch seed % 5 {
	case 0:
		after(backs[0].die)
	case 1:
		after(backs[0].die)
		after(backs[1].die)
	case 2:
		after(front.die)
	case 3:
		after(cancel)
	case 4:
		after(func() { r.Close() })
	}
	var ended atomic.Int64
	const calls = 6
	for i := range calls {
		go func() {
			err := converse(ctx, front, i%2 == 0)
			ended.Add(1)
			switch status.Code(err) {
			case codes.OK, codes.Unavailable, codes.Canceled:
			case codes.Unimplemented:
				if seed%5 != 4 { // a closed router has no services
					t.Errorf("seed %d: %v", seed, err)
				}
			default:
				t.Errorf("seed %d: %v", seed, err)
			}
		}()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if ended.Load() != calls {
		t.Errorf("seed %d: %d of %d calls ended", seed, ended.Load(), calls)
	}
	for i, b := range backs {
		if b.opened.Load() != b.ended.Load() {
			t.Errorf("seed %d: back end %d has %d calls of %d left", seed, i, b.opened.Load()-b.ended.Load(), b.opened.Load())
		}
	}
	for _, row := range r.Calls() {
		if row.InFlight != 0 {
			t.Errorf("seed %d: %d in flight", seed, row.InFlight)
		}
	}
	cancel()
	r.Close()
}

// seeded is a source of chance that is the same in each run.
func seeded(seed uint64) func() uint64 {
	var mu sync.Mutex
	source := rand.NewPCG(seed, 4)
	return func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return source.Uint64()
	}
}

// jittery echoes with pauses.
func jittery(seed uint64) func(call.ServerStream) error {
	var n atomic.Uint64
	return func(s call.ServerStream) error {
		random := rand.New(rand.NewPCG(seed, n.Add(1)))
		for {
			if !sleep(s.Context(), time.Duration(random.IntN(2000))*time.Microsecond) {
				return s.Context().Err()
			}
			m, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			if err := s.Send(m); err != nil {
				return err
			}
		}
	}
}

// converse makes a call and returns how it ended; a status of OK with an answer
// missing is an error of its own.
func converse(ctx context.Context, front *fake, streaming bool) error {
	s, err := front.Open(ctx, &call.Head{Method: find, Streaming: streaming})
	if err != nil {
		return err
	}
	words := 1
	if streaming {
		words = 5
	}
	go func() {
		for range words {
			if s.Send(text("x")) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	got, err := rest(s)
	if !errors.Is(err, io.EOF) {
		return err
	}
	if len(got) != words {
		return fmt.Errorf("%d answers to %d messages", len(got), words)
	}
	return nil
}
