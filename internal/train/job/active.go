package job

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
)

// An activeJob is a job that this node drives.
type activeJob struct {
	manager *Manager
	lines   *lines
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the manager no longer drives the job
	ending  func() bool   // reports whether the job was told to end
	// excluded has the lost nodes whose devices the next attempt does not use.
	excluded map[outboard.NodeID]exclusion
	// move is that of the attempt, and next has the nodes of the next attempt if stages move; nil:
	// their devices have to be leased.
	move *move
	next []*nodeRun

	record
	// progress reads the progress of rank 0.
	progress progressReader
}

// progressInterval is the interval at which progress, and the place in the queue, are written.
const progressInterval = 5 * time.Second

// note adds a line about the job itself.
func (a *activeJob) note(format string, args ...any) {
	a.lines.add(client.JobLine{Time: time.Now().UTC(), Attempt: a.snapshot().Attempt, Rank: -1, Text: fmt.Sprintf(format, args...)})
}

// updateNoting changes the job and waits until the table has the change. A line about the job says
// what waits, if that takes longer than an attempt to write.
func (a *activeJob) updateNoting(ctx context.Context, what string, change func(*client.Job)) error {
	version := a.change(change)
	soon, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	err := a.await(soon, version)
	if soon.Err() == nil || ctx.Err() != nil {
		return err
	}
	a.note("%s waits for the pool's state: %v", what, err)
	return a.await(ctx, version)
}

// run makes one attempt after the other until the job has ended.
func (a *activeJob) run(ctx context.Context) {
	restarts := 0
	defer func() {
		for _, n := range a.next {
			n.held.release()
		}
	}()
	for {
		err := a.attempt(ctx)
		if ctx.Err() != nil {
			a.end(context.Cause(ctx))
			return
		}
		if errors.Is(err, errMoved) {
			continue
		}
		if !isLoss(err) {
			a.end(err)
			return
		}
		if lost, ok := errors.AsType[*lostError](err); ok {
			a.exclude(lost, time.Now())
		}
		restarts++
		if restarts > a.snapshot().Spec.Restarts {
			a.end(fmt.Errorf("%w, after %d restarts", err, restarts-1))
			return
		}
		a.manager.opts.Metrics.restarted()
		a.note("the ranks start again")
		a.change(func(j *client.Job) {
			j.State, j.Reason, j.Ranks, j.World = client.JobWaiting, err.Error(), nil, 0
		})
	}
}

// isLoss reports whether an attempt has ended by the loss of a node, of a rank or of the state of
// one, after which the ranks start again: a program that fails by itself would fail again.
func isLoss(err error) bool {
	if _, ok := errors.AsType[*lostError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*statesError](err); ok {
		return true
	}
	f, ok := errors.AsType[*rankError](err)
	return ok && f.killed
}

// end records how the job has ended. A detached job whose node stops continues later.
func (a *activeJob) end(err error) {
	if errors.Is(err, errNodeStops) && a.snapshot().Spec.Detach {
		a.change(func(j *client.Job) { j.State, j.Reason = client.JobWaiting, err.Error() })
		return
	}
	a.change(func(j *client.Job) {
		j.State, j.Ended = client.JobSucceeded, time.Now().UTC()
		if err == nil {
			j.Stages = nil
		} else {
			j.State, j.Reason, j.Status = client.JobFailed, err.Error(), 1
		}
		if errors.Is(err, errCanceled) || errors.Is(err, errNodeStops) {
			j.State, j.Status = client.JobCanceled, 0
		}
		if f, ok := errors.AsType[*rankError](err); ok {
			j.Status = f.status
		}
	})
	a.manager.opts.Metrics.ended(a.snapshot().State)
}

// A lostError reports the loss of a node with ranks, or that a node could not start them.
type lostError struct {
	node outboard.NodeID
	boot string // of the node when the attempt began
	err  error
}

func (e *lostError) Error() string {
	if r, ok := errors.AsType[*outboard.Error](e.err); ok && r.Op == methodRun && r.Kind == outboard.Other {
		return fmt.Sprintf("node %s could not start its ranks (%v)", e.node, r.Err)
	}
	return fmt.Sprintf("node %s is lost (%v)", e.node, e.err)
}

func (e *lostError) Unwrap() error { return e.err }

// A rankError reports the rank that failed first.
type rankError struct {
	rank, status int
	killed       bool // from outside, within its limits
	node         outboard.NodeID
	reason       string
}

func (e *rankError) Error() string {
	if e.killed {
		return fmt.Sprintf("rank %d was killed (SIGKILL) on node %s", e.rank, e.node)
	}
	return fmt.Sprintf("%s, on node %s", strings.TrimPrefix(e.reason, "launch: "), e.node)
}

// acquire leases the devices of the next attempt: for all ranks, or, after the loss of a node, for
// as many as there are devices now and at least MinRanks. If there are fewer it waits for MinRanks.
func (a *activeJob) acquire(ctx context.Context) ([]outboard.Lease, error) {
	j, report := a.snapshot(), a.waitReporter()
	for {
		changed := a.manager.opts.Leases.Changed()
		unusable, until := a.unusable(time.Now())
		request := pool.Request{
			Selector: j.Spec.Selector, Count: j.Spec.Ranks / j.Spec.PerDevice, Memory: j.Spec.Memory,
			Program: "job " + j.ID, Exclude: unusable,
		}
		if j.Attempt > 0 && j.Spec.MinRanks < j.Spec.Ranks {
			leases, err := a.acquireFewer(ctx, request, j.Spec.MinRanks/j.Spec.PerDevice)
			if err == nil {
				return leases, nil
			}
			// Other jobs may hold the rest for ever.
			request.Count = j.Spec.MinRanks / j.Spec.PerDevice
		}
		request.Progress = func(w pool.Waiting) { report(&request, w) }
		if !until.IsZero() {
			request.Timeout = max(time.Until(until), 1) // Then the request excludes fewer nodes.
		}
		leases, err := a.manager.opts.Leases.Acquire(ctx, request)
		if !until.IsZero() && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			continue
		}
		// The first attempt fails immediately if the pool has too few devices. Later attempts wait
		// for nodes.
		if j.Attempt == 0 || outboard.KindOf(err) != outboard.NoDevice {
			return leases, err
		}
		if reason := err.Error(); a.snapshot().Reason != reason {
			a.change(func(j *client.Job) { j.Reason = reason })
		}
		if err := waitForDevices(ctx, changed, until); err != nil {
			return nil, err
		}
	}
}

// waitReporter returns a function that records for what the job waits in the pool's queue. The lines of
// the job have the first report, the record the last one.
func (a *activeJob) waitReporter() func(*pool.Request, pool.Waiting) {
	last := ""
	return func(r *pool.Request, w pool.Waiting) {
		reason := fmt.Sprintf("waits for %d device(s)", r.Count)
		if s := r.Selector.String(); s != "" {
			reason += fmt.Sprintf(" of %q", s)
		}
		if r.Memory > 0 {
			reason += fmt.Sprintf(" with %v each", r.Memory)
		}
		if reason += ": " + w.String(); reason == last {
			return
		}
		if last == "" {
			a.note("%s", reason)
		}
		last = reason
		a.changeOften(func(j *client.Job) bool {
			j.Reason = reason
			return true
		})
	}
}

// waitForDevices waits until the pool has changed, or until a time unless it is zero.
func waitForDevices(ctx context.Context, changed <-chan struct{}, until time.Time) error {
	var expired <-chan time.Time
	if !until.IsZero() {
		expired = time.After(time.Until(until))
	}
	select {
	case <-changed:
	case <-expired:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// acquireFewer leases as many devices as are free now.
func (a *activeJob) acquireFewer(ctx context.Context, request pool.Request, least int) (leases []outboard.Lease, err error) {
	request.NoWait = true
	for ; request.Count >= least; request.Count-- {
		if leases, err = a.manager.opts.Leases.Acquire(ctx, request); err == nil {
			return leases, nil
		}
	}
	return nil, err
}
