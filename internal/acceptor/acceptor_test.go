package acceptor

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A listener returns errors and connections as a test wants them.
type listener struct {
	results chan any // error or net.Conn
	closed  chan struct{}
}

func (l *listener) Close() error {
	close(l.closed)
	return nil
}

func (l *listener) accept() (net.Conn, error) {
	select {
	case r := <-l.results:
		if err, ok := r.(error); ok {
			return nil, err
		}
		return r.(net.Conn), nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// A shortage of descriptors is reported once, waited for, and reported as over.
func TestShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{results: make(chan any), closed: make(chan struct{})}
		var reports []error
		served := make(chan net.Conn, 1)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			Serve(ctx, l, l.accept, Options{Degraded: func(err error) { reports = append(reports, err) }},
				func(_ context.Context, c net.Conn) { served <- c })
		}()
		began := time.Now()
		for range 12 {
			l.results <- syscall.EMFILE
		}
		a, b := net.Pipe()
		defer b.Close()
		l.results <- a
		if c := <-served; c != a {
			t.Error("another connection was served")
		}
		if waited := time.Since(began); waited < 4*time.Second || waited > 6*time.Second {
			t.Errorf("twelve errors took %v: 5 ms, doubled up to 1 s", waited)
		}
		synctest.Wait()
		if len(reports) != 2 || !errors.Is(reports[0], syscall.EMFILE) || reports[1] != nil {
			t.Errorf("reports: %v", reports)
		}
		cancel()
		<-done
	})
}

func TestMaxConns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &listener{results: make(chan any), closed: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		release := make(chan struct{})
		var serving atomic.Int32
		go func() {
			defer close(done)
			Serve(ctx, l, l.accept, Options{MaxConns: 2}, func(context.Context, net.Conn) {
				serving.Add(1)
				<-release
			})
		}()
		go func() {
			for range 4 {
				a, _ := net.Pipe()
				select {
				case l.results <- a:
				case <-ctx.Done():
				}
			}
		}()
		synctest.Wait()
		if serving.Load() != 2 {
			t.Errorf("%d connections are served at a time", serving.Load())
		}
		close(release)
		synctest.Wait()
		if serving.Load() != 4 {
			t.Errorf("%d connections were served", serving.Load())
		}
		cancel()
		<-done
	})
}

func TestClosedListener(t *testing.T) {
	l := &listener{results: make(chan any), closed: make(chan struct{})}
	_ = io.Closer(l).Close()
	Serve(t.Context(), closer{}, l.accept, Options{}, func(context.Context, net.Conn) {})
}

type closer struct{}

func (closer) Close() error { return nil }
