// Package lifecycle is how the parts of a node start and stop.
//
// There are two shapes. A resource is opened with Open(ctx, Options) and closed
// with an idempotent Close that waits for the goroutines it owns. A [Service] is
// made with New(Options), which starts nothing, and lives while its Run does.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// A Service is a part that runs until its context ends.
type Service interface {
	// Name says which service it is in errors.
	Name() string
	// Run blocks while the service works. It calls ready once, when others may
	// use the service, and it returns nil when ctx ended. It waits for every
	// goroutine that it started.
	Run(ctx context.Context, ready func()) error
}

// A Resource is something open that must be closed.
type Resource interface {
	// Close may be called more than once; it waits for the resource's goroutines.
	Close() error
}

// ErrStopped says that a service returned although nobody had asked it to stop.
var ErrStopped = errors.New("stopped by itself")

// running is one service on its way.
type running struct {
	service Service
	stop    context.CancelFunc
	ready   chan struct{}
	done    chan struct{}
	err     error // set before done is closed
}

// Run starts the services in order, each after the one before is ready, calls
// ready, and blocks until ctx ends or a service fails. Then it stops those that
// run, the last one first, waiting for each. It returns nil when ctx ended and
// all stopped in order, otherwise all errors joined.
func Run(ctx context.Context, ready func(), services ...Service) error {
	var started []*running
	failed := make(chan struct{})
	var once sync.Once
	var errs []error
	for _, s := range services {
		r := start(ctx, s, func() { once.Do(func() { close(failed) }) })
		started = append(started, r)
		if !r.awaitReady(ctx, failed) {
			break
		}
	}
	if len(started) == len(services) && ready != nil && open(failed) && ctx.Err() == nil {
		ready()
	}
	select {
	case <-ctx.Done():
	case <-failed:
	}
	// A service that returned before it was told to has failed, unless the
	// caller had asked for the end.
	asked := ctx.Err() != nil
	for _, r := range slices.Backward(started) {
		if err := r.finish(asked); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// start runs s under a context of its own, so that services stop one by one.
func start(ctx context.Context, s Service, failed func()) *running {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{service: s, stop: stop, ready: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(r.done)
		var once sync.Once
		r.err = s.Run(own, func() { once.Do(func() { close(r.ready) }) })
		if r.err == nil && own.Err() == nil {
			r.err = ErrStopped
		}
		failed()
	}()
	return r
}

// awaitReady reports whether the service became ready before anything ended.
func (r *running) awaitReady(ctx context.Context, failed <-chan struct{}) bool {
	select {
	case <-r.ready:
		return true
	case <-failed:
	case <-ctx.Done():
	}
	return false
}

func (r *running) finish(asked bool) error {
	r.stop()
	<-r.done
	switch {
	case r.err == nil, asked && errors.Is(r.err, ErrStopped), asked && errors.Is(r.err, context.Canceled):
		return nil
	}
	return fmt.Errorf("%s: %w", r.service.Name(), r.err)
}

func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

// Func makes a service of a name and a function.
func Func(name string, run func(ctx context.Context, ready func()) error) Service {
	return &function{name: name, run: run}
}

type function struct {
	name string
	run  func(ctx context.Context, ready func()) error
}

func (f *function) Name() string { return f.name }

func (f *function) Run(ctx context.Context, ready func()) error { return f.run(ctx, ready) }

// Hold makes a service of a resource: open when the service starts, closed when
// it stops.
func Hold(name string, open func(ctx context.Context) (Resource, error)) Service {
	return Func(name, func(ctx context.Context, ready func()) error {
		r, err := open(ctx)
		if err != nil {
			return err
		}
		ready()
		<-ctx.Done()
		return r.Close()
	})
}
