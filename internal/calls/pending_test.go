package calls_test

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// slowOffers answers an offer only when it is released, long after the pool's table has it.
type slowOffers struct {
	registry *services.Registry
	stored   chan struct{}
	release  chan struct{}
}

func (o *slowOffers) Offer(ctx context.Context, e services.Endpoint, _ string) (services.Endpoint, error) {
	e.ID, e.Node = "harbour/1", "harbour"
	err := o.registry.Offer(ctx, e)
	close(o.stored)
	<-o.release
	return e, err
}

func (*slowOffers) Settled(string) {}

func (o *slowOffers) Withdraw(ctx context.Context, id string) error {
	return o.registry.Withdraw(ctx, id)
}

// Calls to an endpoint that the pool's table has wait until its program is registered: an operator who
// restarts one server after the other takes an endpoint in the table for one that serves.
func TestEndpointInTheTableServes(t *testing.T) {
	p := newPool(t)
	registry, err := services.Open(t.Context(), services.Options{State: p.state, Members: p, Self: "harbour", Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	p.set(outboard.Node{ID: "harbour", Boot: "1"})
	offers := &slowOffers{registry: registry, stored: make(chan struct{}), release: make(chan struct{})}
	m := &member{registry: registry, socket: filepath.Join(t.TempDir(), "calls.sock")}
	if m.Plane, err = calls.Open(t.Context(), calls.Options{Registry: registry, Members: p, Self: "harbour", Socket: m.socket, Identify: identify, Offers: offers}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		_ = registry.Close()
	})
	m.serve(t, interop.NewTestServer())
	release := sync.OnceFunc(func() { close(offers.release) })
	t.Cleanup(release)
	<-offers.stored
	client := testgrpc.NewTestServiceClient(m.dial(t))
	m.eventually(t, "a call waits", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := client.EmptyCall(ctx, &testgrpc.Empty{})
		return status.Code(err) == codes.DeadlineExceeded
	})
	called := make(chan error, 2)
	go func() {
		_, err := client.EmptyCall(t.Context(), &testgrpc.Empty{})
		called <- err
	}()
	go func() { called <- pingPong(t.Context(), client) }()
	release()
	for range 2 {
		if err := <-called; err != nil {
			t.Error(err)
		}
	}
}
