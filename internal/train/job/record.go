package job

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A record is what this node knows of a job that it drives, and keeps the pool's table up to date
// with it. Changes count at once in memory. The table may be away for some time, as while it moves
// to other nodes: the last version is then written when it is back.
type record struct {
	// write writes a version to the table.
	write func(context.Context, *client.Job) error
	log   *slog.Logger

	mu      sync.Mutex
	job     client.Job
	version int // of job
	due     int // the version that is to be written now, or a later one
	stored  int // the last version in the table
	// failed is the last version that the table has refused, and err the reason.
	failed  int
	err     error
	writing bool
	closed  bool
	written time.Time     // when the last write began
	delayed bool          // a write is due progressInterval after the last one
	next    chan struct{} // closed after the next write; nil while nobody waits
}

const (
	// writeLimit bounds one attempt to write a record.
	writeLimit = 10 * time.Second
	writePause = 200 * time.Millisecond
)

// snapshot returns the job as it is now.
func (r *record) snapshot() client.Job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.copy()
}

// copy returns a copy of the job, r.mu is held. What pointers of a job refer to is replaced, never
// changed.
func (r *record) copy() client.Job {
	j := r.job
	j.Ranks, j.Why, j.Devices = slices.Clone(j.Ranks), slices.Clone(j.Why), slices.Clone(j.Devices)
	return j
}

// change changes the job, and has it written without waiting. It returns the version.
func (r *record) change(f func(*client.Job)) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.job)
	r.version++
	r.startWriting()
	return r.version
}

// startWriting has the job as it is now written. r.mu is held.
func (r *record) startWriting() {
	r.due = r.version
	if !r.writing && !r.closed {
		r.writing, r.written = true, time.Now()
		go r.writeVersions()
	}
}

// changeOften changes the job, and reports by f whether it did. Such changes are written at most once in
// progressInterval: with many jobs, each write of one is a change that all nodes see.
func (r *record) changeOften(f func(*client.Job) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !f(&r.job) {
		return
	}
	r.version++
	if r.delayed {
		return
	}
	wait := progressInterval - time.Since(r.written)
	if wait <= 0 {
		r.startWriting()
		return
	}
	r.delayed = true
	time.AfterFunc(wait, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.delayed = false
		r.writeLatest()
	})
}

// writeLatest has the latest version written unless it has been. r.mu is held.
func (r *record) writeLatest() {
	if max(r.stored, r.failed) < r.version {
		r.startWriting()
	}
}

// update changes the job and waits until the table has the change, or a later one.
func (r *record) update(ctx context.Context, f func(*client.Job)) error {
	return r.await(ctx, r.change(f))
}

// await waits until the table has a version, or a later one. It fails if the table refuses it.
func (r *record) await(ctx context.Context, version int) error {
	for {
		next, err := r.pending(version)
		if next == nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return r.unwritten(ctx)
		}
	}
}

// pending returns a channel that is closed after the next write, nil if version needs no other.
func (r *record) pending(version int) (<-chan struct{}, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.stored >= version:
		return nil, nil
	case r.failed >= version:
		return nil, r.err
	case r.closed:
		return nil, outboard.Errorf(outboard.Unreachable, "", "the job's record is no longer written")
	}
	if r.next == nil {
		r.next = make(chan struct{})
	}
	return r.next, nil
}

// unwritten returns the error of a wait whose context has ended, with that of the last attempt.
func (r *record) unwritten(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(context.Cause(ctx), r.err)
}

// closeRecord ends the writing. It waits until the table has the record, for as long as that takes, but
// after the end of life for at most writeLimit.
func (r *record) closeRecord(life context.Context) {
	r.mu.Lock()
	version := r.version
	r.writeLatest()
	r.mu.Unlock()
	if r.await(life, version) != nil && life.Err() != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(life), writeLimit)
		defer cancel()
		_ = r.await(ctx, version) // Each failure is logged.
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
}

// writeVersions writes the current version until the table has the one that is due, or refuses it.
func (r *record) writeVersions() {
	for {
		r.mu.Lock()
		j, version := r.copy(), r.version
		r.written = time.Now()
		r.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), writeLimit)
		err := r.write(ctx, &j)
		cancel()
		if err != nil {
			r.log.Warn("a job's record is not written", "job", j.ID, "error", err)
		}
		if r.wrote(version, err) {
			return
		}
		if err != nil {
			time.Sleep(writePause)
		}
	}
}

// wrote takes in the result of a write, and reports whether no other is due.
func (r *record) wrote(version int, err error) (done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
	switch {
	case err == nil:
		r.stored = version
	case !isTransient(err):
		r.failed = version
	}
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
	r.writing = !r.closed && max(r.stored, r.failed) < r.due
	return !r.writing
}

// isTransient reports whether the table may accept later what it has not accepted now.
func isTransient(err error) bool {
	return outboard.KindOf(err) == outboard.Unreachable || errors.Is(err, context.DeadlineExceeded)
}
