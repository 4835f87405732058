package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/bench/fabric/hotel"
	"github.com/outboard-run/outboard/fabric"
)

// A load describes the calls that a client makes.
type load struct {
	// Call is the kind of call: echo, marked, shop or work, or a stream: upload, download or
	// pingpong.
	Call string
	// Size is the size of the payloads, in bytes.
	Size int
	// InFlight is the number of callers: each calls again once its call was answered.
	InFlight int
	// Rate, instead of InFlight, is the number of calls that begin per second, at random times.
	Rate    float64
	Seconds float64
}

// A result is the result of a load. Times are in microseconds.
type result struct {
	Calls, Lost, Wrong int
	// Warm is the number of calls before the measured ones.
	Warm                int
	Seconds             float64
	P50, P90, P99, Mean float64
	// Used has the resources that the client used, also for the warm calls.
	Used resources
	// Cause is the first error of a lost call.
	Cause string
}

var errWrong = errors.New("another answer than wanted")

// client prepares the process that makes calls.
func (a *actor) client(context.Context) error {
	a.commands["load"] = decodeArgs(func(ctx context.Context, l load) (any, error) { return a.load(ctx, l) })
	a.commands["hold"] = decodeArgs(a.hold)
	a.commands["mixed"] = decodeArgs(func(ctx context.Context, l mixedLoad) (any, error) { return a.mixed(ctx, l) })
	return nil
}

// callers returns n functions that make one call each, and the Closer of the connection that they
// share.
func (a *actor) callers(ctx context.Context, l load, n int) ([]func() error, io.Closer, error) {
	if a.spec.Stack == stackRaw {
		call, c, err := rawCaller(ctx, a.spec.target(""), l.Size)
		return []func() error{call}, c, err
	}
	c, err := a.connect()
	if err != nil {
		return nil, nil, err
	}
	calls := make([]func() error, n)
	for i := range calls {
		if calls[i], err = caller(ctx, c, l, i, borrows(a.spec.Stack)...); err != nil {
			return nil, nil, errors.Join(err, c.Close())
		}
	}
	return calls, c, nil
}

// borrows returns the options with which a caller on a stack reads its responses.
func borrows(stack string) []grpc.CallOption {
	if stack == stackBorrowed {
		return []grpc.CallOption{fabric.WithBorrowedResponse(new(fabric.Loan))}
	}
	return nil
}

func caller(ctx context.Context, c grpc.ClientConnInterface, l load, i int, opts ...grpc.CallOption) (func() error, error) {
	switch l.Call {
	case "echo":
		return echoCaller(ctx, c, l.Size, opts...), nil
	case "marked":
		return markedCaller(ctx, c, l.Size), nil
	case "work":
		return workCaller(ctx, c), nil
	case "shop":
		return shopCaller(ctx, c, i), nil
	case "upload":
		return uploadCaller(ctx, c, l.Size), nil
	case "download":
		return downloadCaller(ctx, c, l.Size), nil
	case "pingpong":
		return pingPongCaller(ctx, c, l.Size)
	}
	return nil, fmt.Errorf("no call %q", l.Call)
}

func payload(size int) *testgrpc.Payload { return &testgrpc.Payload{Body: make([]byte, size)} }

func echoCaller(ctx context.Context, c grpc.ClientConnInterface, size int, opts ...grpc.CallOption) func() error {
	stub, in := testgrpc.NewTestServiceClient(c), &testgrpc.SimpleRequest{Payload: payload(size)}
	return func() error {
		out, err := stub.UnaryCall(ctx, in, opts...)
		if err == nil && len(out.GetPayload().GetBody()) != size {
			err = errWrong
		}
		return err
	}
}

// markedCaller returns a caller that checks that each call has all marks of one set of policies.
func markedCaller(ctx context.Context, c grpc.ClientConnInterface, size int) func() error {
	stub, in := testgrpc.NewTestServiceClient(c), &testgrpc.SimpleRequest{Payload: payload(size), FillUsername: true}
	return func() error {
		out, err := stub.UnaryCall(ctx, in)
		if err == nil && (len(out.GetPayload().GetBody()) != size || out.GetUsername() == "" || out.GetUsername() != out.GetOauthScope()) {
			err = errWrong
		}
		return err
	}
}

func workCaller(ctx context.Context, c grpc.ClientConnInterface) func() error {
	stub, in := testgrpc.NewTestServiceClient(c), new(testgrpc.SimpleRequest)
	return func() error {
		_, err := stub.UnaryCall(ctx, in)
		return err
	}
}

func shopCaller(ctx context.Context, c grpc.ClientConnInterface, i int) func() error {
	return func() error {
		in, want := hotel.Question(i)
		i++
		out, err := hotel.Hotels(ctx, c, in)
		if err == nil && len(out.GetOffers()) != want {
			err = errWrong
		}
		return err
	}
}

// A tally holds the results of one caller.
type tally struct {
	times []time.Duration
	lost  int
	wrong int
	cause error
}

func (t *tally) add(took time.Duration, err error) {
	switch {
	case err == nil:
		t.times = append(t.times, took)
	case errors.Is(err, errWrong):
		t.wrong++
	default:
		t.lost++
		if t.cause == nil {
			t.cause = err
		}
	}
}

func (a *actor) load(ctx context.Context, l load) (result, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, err := usage()
	if err != nil {
		return result{}, err
	}
	calls, shared, err := a.open(ctx, l)
	if err != nil {
		return result{}, err
	}
	defer shared.Close()
	began := time.Now()
	over := after(l.Seconds)
	var tallies []*tally
	if l.Rate > 0 {
		tallies = openLoop(calls[0], l.Rate, over)
	} else {
		tallies = closedLoop(calls, over)
	}
	r := summary(tallies)
	r.Seconds, r.Warm = time.Since(began).Seconds(), l.warm()
	now, err := usage()
	r.Used = now.minus(before)
	return r, err
}

// warm returns the number of calls before the measured ones: they connect, and grow windows and
// pools. The calls of a stream have a thousand messages each.
func (l load) warm() int {
	switch {
	case l.Rate > 0:
		return 0 // the calls would queue
	case l.Call == "upload" || l.Call == "download":
		return 2
	}
	return warmCalls
}

// warmCalls is the number of unary calls before measured ones.
const warmCalls = 50

func (a *actor) open(ctx context.Context, l load) ([]func() error, io.Closer, error) {
	calls, shared, err := a.callers(ctx, l, max(l.InFlight, 1))
	if err != nil {
		return nil, nil, err
	}
	for range l.warm() {
		if err := calls[0](); err != nil && !errors.Is(err, errWrong) {
			return nil, nil, errors.Join(fmt.Errorf("warm up: %w", err), shared.Close())
		}
	}
	return calls, shared, nil
}

// after returns a function that reports whether this many seconds have passed.
func after(seconds float64) func() bool {
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	return func() bool { return time.Now().After(end) }
}

// closedLoop repeats each of calls in a goroutine of its own, once at least, until over returns
// true.
func closedLoop(calls []func() error, over func() bool) []*tally {
	tallies := make([]*tally, len(calls))
	var all sync.WaitGroup
	for i, call := range calls {
		t := &tally{times: make([]time.Duration, 0, 1<<16)}
		tallies[i] = t
		all.Go(func() {
			for more := true; more; more = !over() {
				began := time.Now()
				err := call()
				t.add(time.Since(began), err)
			}
		})
	}
	all.Wait()
	return tallies
}

// openLoop begins calls at random times, whether or not earlier calls were answered. The times are
// measured from when a call should have begun.
func openLoop(call func() error, rate float64, over func() bool) []*tally {
	var mu sync.Mutex
	var all sync.WaitGroup
	t := new(tally)
	next := time.Now()
	for !over() {
		time.Sleep(time.Until(next))
		due := next
		all.Go(func() {
			err := call()
			took := time.Since(due)
			mu.Lock()
			defer mu.Unlock()
			t.add(took, err)
		})
		next = next.Add(time.Duration(rand.ExpFloat64() / rate * float64(time.Second)))
	}
	all.Wait()
	return []*tally{t}
}

func summary(tallies []*tally) result {
	var r result
	var times []time.Duration
	for _, t := range tallies {
		times = append(times, t.times...)
		r.Lost += t.lost
		r.Wrong += t.wrong
		if r.Cause == "" && t.cause != nil {
			r.Cause = t.cause.Error()
		}
	}
	r.Calls = len(times)
	if len(times) == 0 {
		return r
	}
	slices.Sort(times)
	at := func(q float64) float64 { return micros(times[int(q*float64(len(times)-1))]) }
	r.P50, r.P90, r.P99 = at(0.5), at(0.9), at(0.99)
	for _, t := range times {
		r.Mean += micros(t) / float64(len(times))
	}
	return r
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
