// Package lifecycle starts the services of a process in order and stops them in reverse.
//
// The parts of a node have one of two forms. A [Resource] is opened with Open(ctx, Options) and
// closed with an idempotent Close that waits for the goroutines it owns. A [Service] is
// created with New(Options), which starts nothing, and lives while its Run does.
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
	// Name identifies the service in errors.
	Name() string
	// Run blocks while the service works. It calls ready once, when other services may
	// use this one, and returns nil when ctx ends. Before it returns it waits for every
	// goroutine that it started.
	Run(ctx context.Context, ready func()) error
}

// A Resource is open until it is closed.
type Resource interface {
	// Close may be called more than once; it waits for the resource's goroutines.
	Close() error
}

// ErrStopped reports that a service returned before its context ended.
var ErrStopped = errors.New("stopped by itself")

// running is a started service.
type running struct {
	service Service
	stop    context.CancelFunc
	ready   chan struct{}
	done    chan struct{}
	err     error // set before done is closed
}

// Run starts the services in order, each after its predecessor is ready, calls
// ready, and blocks until ctx ends or a service fails. Then it stops the started
// services in reverse order and waits for each. It returns nil if ctx ended and
// all services stopped without an error, otherwise all errors joined.
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
	// A service that returned before it was stopped has failed, unless the
	// caller had ended ctx.
	requested := ctx.Err() != nil
	for _, r := range slices.Backward(started) {
		if err := r.finish(requested); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// start runs s under a context of its own, so that Run can stop the services one by one.
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

// awaitReady reports whether the service became ready before ctx ended or a service failed.
func (r *running) awaitReady(ctx context.Context, failed <-chan struct{}) bool {
	select {
	case <-r.ready:
		return true
	case <-failed:
	case <-ctx.Done():
	}
	return false
}

// finish stops the service and waits for it. requested says that the caller of Run ended its
// context: a service that returned by itself is then no failure.
func (r *running) finish(requested bool) error {
	r.stop()
	<-r.done
	switch {
	case r.err == nil, requested && errors.Is(r.err, ErrStopped), requested && errors.Is(r.err, context.Canceled):
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

// Func returns a service with the given name whose Run is run.
func Func(name string, run func(ctx context.Context, ready func()) error) Service {
	return &function{name: name, run: run}
}

type function struct {
	name string
	run  func(ctx context.Context, ready func()) error
}

func (f *function) Name() string { return f.name }

func (f *function) Run(ctx context.Context, ready func()) error { return f.run(ctx, ready) }

// Hold returns a service that opens a resource when it starts and closes it when it stops.
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
