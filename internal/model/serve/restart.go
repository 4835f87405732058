package serve

import (
	"context"
	"time"
)

// Restarts of a worker that ends by itself are delayed exponentially, until a worker has run for
// stableRun.
const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 30 * time.Second
	stableRun    = 2 * lastRestart
)

// countCrash counts the end of a worker that ran for so long.
func (i *instance) countCrash(ran time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if ran >= stableRun {
		i.crashes = 0
	}
	i.crashes++
	i.crashed = time.Now()
}

// restartTime returns the time before which the worker is not started again. mu must be held.
func (i *instance) restartTime() time.Time {
	return i.crashed.Add(min(firstRestart<<min(i.crashes, 16), lastRestart))
}

// ensureRunning starts the worker again if it has ended.
func (i *instance) ensureRunning(ctx context.Context) error {
	i.mu.Lock()
	if !isDone(i.worker.Done()) {
		i.mu.Unlock()
		return nil
	}
	again := i.again
	if again == nil && i.life.Err() != nil {
		err := i.worker.Err()
		i.mu.Unlock()
		return err
	}
	if again == nil {
		again = make(chan struct{})
		i.again = again
		go i.restart(again)
	}
	i.mu.Unlock()
	select {
	case <-again:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if isDone(i.worker.Done()) {
		return i.worker.Err()
	}
	return nil
}

func (i *instance) restart(again chan struct{}) {
	i.mu.Lock()
	delay := time.Until(i.restartTime())
	old := i.queue
	i.mu.Unlock()
	_ = old.Close(i.life)
	select {
	case <-time.After(delay):
	case <-i.life.Done():
	}
	w, err := i.start(i.life)
	switch {
	case err == nil:
		go i.watch(w)
	case i.life.Err() == nil:
		i.server.log.Error("a model's process was not started again", "model", i.spec.Name, "error", err)
		i.countCrash(0)
	}
	i.mu.Lock()
	i.again = nil
	i.mu.Unlock()
	close(again)
}

// endRestarts ends a restart of the worker, waits for its end, and prevents further ones. A worker
// that has started nevertheless is the instance's worker then.
func (i *instance) endRestarts() {
	i.mu.Lock()
	i.end()
	again := i.again
	i.mu.Unlock()
	if again != nil {
		<-again
	}
}
