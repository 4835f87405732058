package calls

import (
	"context"
	"log/slog"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// scriptedOffers stores each offer by a function.
type scriptedOffers struct {
	offer func(ctx context.Context, e services.Endpoint) (services.Endpoint, error)

	mu        sync.Mutex
	withdrawn []string
}

func (o *scriptedOffers) Offer(ctx context.Context, e services.Endpoint, _ string) (services.Endpoint, error) {
	return o.offer(ctx, e)
}

func (*scriptedOffers) Settled(string) {}

func (o *scriptedOffers) Withdraw(ctx context.Context, id string) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.withdrawn = append(o.withdrawn, id)
	return nil
}

// empty is a program whose calls return an empty message.
type empty struct{}

func (empty) Serve(call.ServerStream) error { return nil }

func (empty) ServeUnary(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
	m.Free()
	return &call.Message{Data: []byte{}}, call.End{}, nil
}

// offering is the programs of a process, on a socket.
func offering(t *testing.T, o Offers) (ps *programs, dial func() *shared.Conn) {
	t.Helper()
	life := newLifetime()
	ps = newPrograms(Options{Offers: o, Self: "harbour", Process: 1, Logger: slog.New(slog.DiscardHandler)}, life, nil)
	ps.changed, ps.remoteCallers = func() {}, func() bool { return false }
	path := filepath.Join(t.TempDir(), "s")
	l, err := shared.Listen(path, shared.Options{Handler: empty{}})
	if err != nil {
		t.Fatal(err)
	}
	life.Go(func() { ps.serve(life.ctx, l) })
	t.Cleanup(func() {
		life.cancel()
		life.running.Wait()
	})
	return ps, func() *shared.Conn {
		c, err := shared.Dial(t.Context(), path, shared.Options{Handler: empty{}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
}

// offerService offers a service on a connection, and returns the endpoint's ID.
func offerService(ctx context.Context, c *shared.Conn, service string) (string, error) {
	h := &call.Head{Method: offer.Method, Metadata: metadata.MD{offer.ServiceKey: {service}}}
	m, end, err := c.Unary(ctx, h, &call.Message{Data: []byte{}})
	m.Free()
	if err != nil {
		return "", err
	}
	return end.Header.Get(offer.EndpointKey)[0], nil
}

// The endpoint of a program that ends while it offers its services does not stay in the pool's table:
// other nodes would send calls to it for ever.
func TestProgramEndsWhileItOffers(t *testing.T) {
	var ps *programs
	answered, dialled := make(chan struct{}), make(chan *shared.Conn, 1)
	o := &scriptedOffers{}
	// The table has the endpoint when Offer returns, whether its caller still waits or not.
	o.offer = func(ctx context.Context, e services.Endpoint) (services.Endpoint, error) {
		e.ID = "harbour/1"
		_ = (<-dialled).Close()
		for ps.connectedCount() > 0 {
			runtime.Gosched()
		}
		return e, ctx.Err()
	}
	ps, dial := offering(t, o)
	c := dial()
	dialled <- c
	go func() {
		defer close(answered)
		if _, err := offerService(t.Context(), c, "shop.Cart"); err == nil {
			t.Error("an offer on a closed connection succeeded")
		}
	}()
	<-answered
	for len(ps.offersInProgress(anyProgram)) > 0 {
		runtime.Gosched()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.withdrawn) != 1 || o.withdrawn[0] != "harbour/1" {
		t.Errorf("withdrawn: %q", o.withdrawn)
	}
}

// asked is a context that calls f when its Done is used.
type asked struct {
	context.Context //nolint:containedctx // this is a context
	f               func()
}

func (a asked) Done() <-chan struct{} {
	a.f()
	return nil
}

// Two programs of one operating system process offer services at once: calls to the first wait for
// its registration, not for the second's.
func TestPendingEndpointOfOneOfTwoPrograms(t *testing.T) {
	var stored sync.WaitGroup
	stored.Add(2)
	release := map[string]chan struct{}{"shop.First": make(chan struct{}), "shop.Second": make(chan struct{})}
	ps, dial := offering(t, &scriptedOffers{offer: func(_ context.Context, e services.Endpoint) (services.Endpoint, error) {
		e.ID = "harbour/" + e.Services[0]
		stored.Done()
		<-release[e.Services[0]]
		return e, nil
	}})
	first, second := make(chan error, 1), make(chan error, 1)
	for service, answered := range map[string]chan error{"shop.First": first, "shop.Second": second} {
		c := dial()
		go func() {
			_, err := offerService(t.Context(), c, service)
			answered <- err
		}()
	}
	stored.Wait()
	pid := 0
	ps.mu.Lock()
	for p := range ps.offered {
		pid = p.conn.Peer().PID
	}
	ps.mu.Unlock()
	var pending []call.Unary
	for range 32 {
		pending = append(pending, ps.pending(services.Endpoint{ID: "harbour/shop.First", PID: pid, Process: 1}).(call.Unary))
	}
	close(release["shop.Second"])
	if err := <-second; err != nil {
		t.Fatal(err)
	}
	registerFirst := sync.OnceFunc(func() { close(release["shop.First"]) })
	for _, e := range pending {
		ctx := asked{t.Context(), registerFirst}
		m, _, err := e.Unary(ctx, &call.Head{Method: "/shop.First/Get"}, &call.Message{Data: []byte{}})
		if err != nil {
			t.Error(err)
		}
		m.Free()
	}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

func (ps *programs) connectedCount() int {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return len(ps.connected)
}
