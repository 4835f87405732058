package services

import (
	"context"
	"sync"
	"time"
)

// The pauses between the attempts to publish a node's endpoints after a failure, and the time that
// one attempt may take.
const (
	minRepeatPause = 100 * time.Millisecond
	maxRepeatPause = 5 * time.Second
	repeatLimit    = 10 * time.Second
)

// A repeater publishes a node's endpoints again after an attempt that has failed, as on a full disk:
// otherwise other nodes would keep a withdrawn endpoint until the node's next change.
type repeater struct {
	life    context.Context //nolint:containedctx // of the goroutine
	stop    context.CancelFunc
	running sync.WaitGroup

	// Registry.write guards the fields below.
	pending bool // the last attempt has failed
	active  bool // the goroutine runs
}

func (p *repeater) init() { p.life, p.stop = context.WithCancel(context.Background()) }

// close ends the attempts.
func (p *repeater) close() {
	p.stop()
	p.running.Wait()
}

// start begins to repeat attempts, unless they are repeated already. Registry.write is held.
func (p *repeater) start(r *Registry) {
	if p.active || p.life.Err() != nil {
		return
	}
	p.active = true
	p.running.Go(func() { p.run(r) })
}

// run repeats attempts until one has succeeded.
func (p *repeater) run(r *Registry) {
	pause := minRepeatPause
	for p.sleep(pause) && p.awaited(r) {
		ctx, cancel := context.WithTimeout(p.life, repeatLimit)
		if err := r.announce(ctx); err != nil {
			r.opts.Logger.Debug("this node's endpoints are not published yet", "error", err)
		}
		cancel()
		pause = min(2*pause, maxRepeatPause)
	}
}

// awaited reports whether the last attempt has failed. If not, the goroutine ends.
func (p *repeater) awaited(r *Registry) bool {
	r.write.Lock()
	defer r.write.Unlock()
	p.active = p.pending
	return p.pending
}

// sleep returns false at the end of the Registry.
func (p *repeater) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-p.life.Done():
		return false
	}
}
