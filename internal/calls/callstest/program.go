package callstest

import (
	"context"
	"sync"
	"testing"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/outboard-run/outboard/fabric"
)

// A Program serves the test service at a target.
type Program struct {
	server *fabric.Server
	cancel context.CancelFunc
	done   chan error // has the result of Run
	stop   sync.Once
	t      testing.TB
}

// Serve starts a program that serves impl at a target of [fabric.Listen] until the test ends, or the
// program is stopped.
func Serve(t testing.TB, target string, impl testgrpc.TestServiceServer) *Program {
	t.Helper()
	l, err := fabric.Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{server: fabric.NewServer(), done: make(chan error, 1), t: t}
	testgrpc.RegisterTestServiceServer(p.server, impl)
	var ctx context.Context
	ctx, p.cancel = context.WithCancel(context.Background())
	go func() { p.done <- p.server.Run(ctx, l) }()
	t.Cleanup(p.Stop)
	return p
}

// Stop ends the context of Run and waits for its end. An error of Run fails the test. It may be
// called twice.
func (p *Program) Stop() {
	p.stop.Do(func() {
		p.cancel()
		if err := <-p.done; err != nil {
			p.t.Error(err)
		}
		p.server.Stop()
	})
}

// StopGracefully calls GracefulStop, and then Stop.
func (p *Program) StopGracefully() {
	p.server.GracefulStop()
	p.Stop()
}
