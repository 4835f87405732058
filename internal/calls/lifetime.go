package calls

import (
	"context"
	"sync"
)

// A lifetime owns the goroutines of a Plane and the context that ends them.
type lifetime struct {
	ctx     context.Context //nolint:containedctx // it is what the type is about
	cancel  context.CancelFunc
	running sync.WaitGroup
}

func newLifetime() *lifetime {
	l := &lifetime{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Go runs f in a goroutine that Close waits for.
func (l *lifetime) Go(f func()) { l.running.Go(f) }
