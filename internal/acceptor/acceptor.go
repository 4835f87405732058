// Package acceptor runs accept loops that survive a shortage of descriptors: they back off, report
// the shortage once, and continue when it is over.
package acceptor

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Options of a loop; the zero value works.
type Options struct {
	// Name is the name of the service, for the log.
	Name string
	Log  *slog.Logger
	// MaxConns bounds the connections that are served at a time: the loop accepts no more
	// meanwhile. 0: no bound.
	MaxConns int
	// Degraded is called with the error when accepting begins to fail, and with nil when it
	// works again. It may be nil.
	Degraded func(error)
	// MinBackoff and MaxBackoff are the waits after an error: 5 ms and 1 s by default.
	MinBackoff, MaxBackoff time.Duration
}

func (o *Options) setDefaults() {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Degraded == nil {
		o.Degraded = func(error) {}
	}
	o.MinBackoff = cmp.Or(o.MinBackoff, 5*time.Millisecond)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, time.Second)
}

// Serve accepts connections and serves each in a goroutine until ctx ends or listener is
// closed. It closes listener, and returns when all its goroutines have. serve owns its
// connection.
func Serve[C net.Conn](ctx context.Context, listener io.Closer, accept func() (C, error), opts Options, serve func(context.Context, C)) {
	opts.setDefaults()
	var serving sync.WaitGroup
	defer serving.Wait()
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	l := loop{opts: opts, wait: opts.MinBackoff}
	slots := make(chan struct{}, max(opts.MaxConns, 1))
	for {
		conn, err := accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			l.failed(ctx, err)
			continue
		}
		l.accepted()
		if opts.MaxConns > 0 {
			slots <- struct{}{}
		}
		serving.Go(func() {
			if opts.MaxConns > 0 {
				defer func() { <-slots }()
			}
			serve(ctx, conn)
		})
	}
}

// A loop is the state of the back-off.
type loop struct {
	opts    Options
	wait    time.Duration
	failing bool
	since   time.Time
}

// failed reports the first error of a row, and waits.
func (l *loop) failed(ctx context.Context, err error) {
	if !l.failing {
		l.failing, l.since = true, time.Now()
		l.opts.Log.Error("connections are not accepted for the moment", "service", l.opts.Name, "error", err)
		l.opts.Degraded(err)
	}
	timer := time.NewTimer(l.wait)
	defer timer.Stop()
	l.wait = min(2*l.wait, l.opts.MaxBackoff)
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

func (l *loop) accepted() {
	if !l.failing {
		return
	}
	l.opts.Log.Info("connections are accepted again", "service", l.opts.Name, "after", time.Since(l.since).Round(time.Millisecond).String())
	l.failing, l.wait = false, l.opts.MinBackoff
	l.opts.Degraded(nil)
}
