package main

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// work is the time that a back end of speed 1 needs for a call.
const work = 8 * time.Millisecond

// A backend serves one call at a time, each in the same time, and reports its load with
// each response. It sleeps instead of computing, so its speed does not depend on the
// machine.
type backend struct {
	testgrpc.UnimplementedTestServiceServer
	takes time.Duration

	mu    sync.Mutex
	free  time.Time     // when the last queued call will be done
	taken time.Duration // work of all calls so far
	calls int
	since window
	last  *orca.OrcaLoadReport
}

// A window is the time that a report covers.
type window struct {
	began time.Time
	done  time.Duration
	calls int
}

// reportEvery is the time between new reports.
const reportEvery = 250 * time.Millisecond

func (a *actor) backend() app {
	now := time.Now()
	b := &backend{takes: time.Duration(float64(work) / a.spec.Speed), free: now, since: window{began: now}, last: new(orca.OrcaLoadReport)}
	a.commands["busy"] = func(context.Context, json.RawMessage) (any, error) { return b.busy(), nil }
	return app{
		func(r grpc.ServiceRegistrar) { testgrpc.RegisterTestServiceServer(r, b) },
		func() error { return nil },
	}
}

// UnaryCall queues the call and waits until it is served.
func (b *backend) UnaryCall(ctx context.Context, _ *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	time.Sleep(time.Until(b.queue(time.Now())))
	raw, err := proto.Marshal(b.report(time.Now()))
	if err != nil {
		return nil, err
	}
	return new(testgrpc.SimpleResponse), grpc.SetTrailer(ctx, metadata.Pairs("endpoint-load-metrics-bin", string(raw)))
}

// queue queues a call that arrives now, and returns when it will be done.
func (b *backend) queue(now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.free.Before(now) {
		b.free = now
	}
	b.free = b.free.Add(b.takes)
	b.taken += b.takes
	return b.free
}

// doneBy returns the work that was done until now. The caller holds the mutex.
func (b *backend) doneBy(now time.Time) time.Duration {
	return b.taken - max(b.free.Sub(now), 0)
}

// busy returns the work that was done until now, in seconds.
func (b *backend) busy() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.doneBy(time.Now()).Seconds()
}

func (b *backend) report(now time.Time) *orca.OrcaLoadReport {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls++
	if passed := now.Sub(b.since.began); passed >= reportEvery {
		done := b.doneBy(now)
		b.last = &orca.OrcaLoadReport{
			CpuUtilization: (done - b.since.done).Seconds() / passed.Seconds(),
			RpsFractional:  float64(b.calls-b.since.calls) / passed.Seconds(),
		}
		b.since = window{now, done, b.calls}
	}
	return b.last
}
