package job

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/train/compress"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/launch"
)

// Leases grants the devices of jobs. *pool.Pool implements it.
type Leases interface {
	// Acquire leases all devices of a request or none, in the order of the pool's queue.
	Acquire(ctx context.Context, req pool.Request) ([]outboard.Lease, error)
	// Hold renews a lease until ctx ends, and releases it then.
	Hold(ctx context.Context, lease outboard.Lease) error
	Claim(lease outboard.Lease) ([]byte, error)
	// Node returns the record of a present node.
	Node(id outboard.NodeID) (outboard.Node, bool)
	Devices() []pool.DeviceState
	Changed() <-chan struct{}
	Links() []client.Link
}

var _ Leases = (*pool.Pool)(nil)

// Options configure a Manager.
type Options struct {
	Self   outboard.NodeID
	State  *state.State
	Leases Leases
	Peers  *Peers
	// Chunks keeps checkpoints and datasets.
	Chunks data.Chunks
	// Discard, if not nil, deletes chunks of superseded checkpoints.
	Discard Discard
	// Dir is the folder with the lines of the jobs.
	Dir     string
	Metrics *Metrics
	Log     *slog.Logger
}

// A Manager runs the jobs that were submitted to this node, and lists those of the pool.
type Manager struct {
	opts Options
	view *state.Follower
	all  map[string]client.Job     // by NODE/ID, under view's lock
	sets map[string]client.Dataset // by NODE/NAME, under view's lock

	life    context.Context //nolint:containedctx // of the jobs
	stop    context.CancelCauseFunc
	driving sync.WaitGroup
	mu      sync.Mutex
	active  map[string]*activeJob
	// written are the jobs of this node as they were written last: the view lags behind.
	written map[string]client.Job
}

// Open returns a Manager that follows the jobs of the pool. It drives the detached jobs of this
// node again.
func Open(ctx context.Context, opts Options) (*Manager, error) {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(opts.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open jobs: %w", err)
	}
	m := &Manager{opts: opts, all: make(map[string]client.Job), sets: make(map[string]client.Dataset), active: make(map[string]*activeJob), written: make(map[string]client.Job)}
	m.life, m.stop = context.WithCancelCause(context.Background())
	var err error
	if m.view, err = state.Follow(ctx, opts.State, opts.Log, m.apply); err != nil {
		return nil, fmt.Errorf("open jobs: %w", err)
	}
	if err := m.adopt(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// errNodeStops is the cause of the end of jobs whose node stops: its next start resumes the
// detached ones.
var errNodeStops = outboard.Errorf(outboard.Unreachable, "", "the job's node was stopped")

// Close ends the ranks of all jobs of this node. Detached jobs continue when the node starts again.
func (m *Manager) Close() error {
	m.stop(errNodeStops)
	m.driving.Wait()
	return m.view.Close()
}

// adopt drives the detached jobs of an earlier run of this node again, and ends the others.
func (m *Manager) adopt(ctx context.Context) error {
	for _, j := range m.List() {
		if j.Node != m.opts.Self || j.State.Final() {
			continue
		}
		if !j.Spec.Detach {
			j.State, j.Reason, j.Ended = client.JobCanceled, "the node that it was submitted to has ended", time.Now().UTC()
			if err := m.write(ctx, &j); err != nil {
				return err
			}
			continue
		}
		if _, err := m.drive(&j); err != nil {
			return err
		}
	}
	return nil
}

// List returns the jobs of the pool, the newest first.
func (m *Manager) List() []client.Job {
	m.view.Lock()
	defer m.view.Unlock()
	list := make([]client.Job, 0, len(m.all))
	for _, j := range m.all {
		if j.Node == m.opts.Self {
			j = m.latest(j.ID)
		}
		list = append(list, j)
	}
	slices.SortFunc(list, func(a, b client.Job) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(keyOf(&a), keyOf(&b)))
	})
	return list
}

// Get returns a job. The state of a job of this node is current, that of another node's job is the
// one last written to the pool's table.
func (m *Manager) Get(id string) (client.Job, error) {
	if a := m.activeJob(id); a != nil {
		return a.snapshot(), nil
	}
	m.view.Lock()
	defer m.view.Unlock()
	if j := m.latest(id); j.ID != "" {
		return j, nil
	}
	for _, key := range slices.Sorted(maps.Keys(m.all)) {
		if j := m.all[key]; j.ID == id {
			return j, nil
		}
	}
	return client.Job{}, outboard.Errorf(outboard.NotFound, "", "there is no job %.40q: `outboard jobs` lists them", id)
}

// latest returns a job of this node as it was written last, the zero value for none. Other nodes may
// write jobs with the same ID. The view's lock is held.
func (m *Manager) latest(id string) client.Job {
	m.mu.Lock()
	defer m.mu.Unlock()
	if j, ok := m.written[id]; ok {
		return j
	}
	return m.all[string(m.opts.Self)+"/"+id]
}

// own returns a job of this node.
func (m *Manager) own(id string) (client.Job, error) {
	j, err := m.Get(id)
	if err == nil && j.Node != m.opts.Self {
		err = outboard.Errorf(outboard.Invalid, "", "job %s belongs to node %s: use the command there", id, j.Node)
	}
	return j, err
}

func (m *Manager) activeJob(id string) *activeJob {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.active[id]
}

const (
	defaultRestarts = 10
	maxArgs         = 1024
	maxArgBytes     = 128 << 10
	maxPlan         = 4 << 10 // bytes of its description
	maxName         = 256     // bytes
)

// check sets the defaults of a spec and checks it.
func check(s *client.JobSpec) error {
	const op = "submit a job"
	s.PerDevice, s.MinRanks = max(s.PerDevice, 1), cmp.Or(s.MinRanks, s.Ranks)
	if s.Restarts == 0 {
		s.Restarts = defaultRestarts
	}
	gradients, err := compress.Parse(s.Gradients)
	if err != nil {
		return outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	s.Gradients = gradients.String()
	resources, err := launch.Resources{Threads: s.Threads, Offload: s.Offload, StageLimit: s.StageLimit}.Check()
	if err != nil {
		return outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	s.Offload = resources.Offload
	size := 0
	for _, a := range s.Args {
		size += len(a)
	}
	for name, value := range s.Env {
		size += len(name) + len(value)
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return outboard.Errorf(outboard.Invalid, op, "%.40q is no variable", name)
		}
	}
	switch {
	case s.Ranks < 1 || s.Ranks > MaxRanks:
		return outboard.Errorf(outboard.Invalid, op, "%d ranks: want 1 to %d", s.Ranks, MaxRanks)
	case s.Ranks%s.PerDevice != 0 || s.MinRanks%s.PerDevice != 0:
		return outboard.Errorf(outboard.Invalid, op, "%d ranks, at least %d, are no multiples of %d for each device", s.Ranks, s.MinRanks, s.PerDevice)
	case s.MinRanks < 1 || s.MinRanks > s.Ranks:
		return outboard.Errorf(outboard.Invalid, op, "at least %d ranks: want 1 to %d", s.MinRanks, s.Ranks)
	case len(s.Args) == 0 || s.Args[0] == "":
		return outboard.Errorf(outboard.Invalid, op, "no program")
	case len(s.Args) > maxArgs || size > maxArgBytes:
		return outboard.Errorf(outboard.Exhausted, op, "arguments and variables have %d bytes: want %d at most", size, maxArgBytes)
	case len(s.Name) > maxName:
		return outboard.Errorf(outboard.Invalid, op, "the name has %d bytes: want %d at most", len(s.Name), maxName)
	case len(s.Plan) > maxPlan:
		return outboard.Errorf(outboard.Exhausted, op, "the description of the plan has %d bytes: want %d at most", len(s.Plan), maxPlan)
	case s.Stream && s.Data == "":
		return outboard.Errorf(outboard.Invalid, op, "it streams no dataset: name one with --dataset")
	case s.Restarts < 0:
		return outboard.Errorf(outboard.Invalid, op, "restarts must not be negative")
	}
	return nil
}

// Submit accepts a job and drives it.
func (m *Manager) Submit(ctx context.Context, spec client.JobSpec) (*Submitted, error) {
	if err := check(&spec); err != nil {
		return nil, err
	}
	if spec.Name == "" {
		spec.Name = strings.Join(spec.Args, " ")
		spec.Name = spec.Name[:min(len(spec.Name), 60)]
	}
	var dataset client.Dataset
	if spec.Data != "" {
		var err error
		if dataset, err = m.Dataset(spec.Data); err != nil {
			return nil, err
		}
	}
	j := client.Job{
		DataDigest: dataset.Digest,
		ID:         "job-" + strings.ToLower(rand.Text()[:8]), Node: m.opts.Self, Spec: spec, State: client.JobWaiting, Created: time.Now().UTC(),
	}
	if err := m.write(ctx, &j); err != nil {
		return nil, err
	}
	a, err := m.drive(&j)
	if err != nil {
		j.State, j.Reason, j.Status, j.Ended = client.JobFailed, err.Error(), 1, time.Now().UTC()
		return nil, errors.Join(err, m.write(ctx, &j))
	}
	m.prune(ctx)
	return &Submitted{a}, nil
}

// Submitted is a job that this node drives.
type Submitted struct{ job *activeJob }

// ID returns the job's ID.
func (s *Submitted) ID() string { return s.job.snapshot().ID }

// Cancel ends the job's ranks.
func (s *Submitted) Cancel() { s.job.cancel(errCanceled) }

var errCanceled = outboard.Errorf(outboard.Other, "", "the job was canceled")

// Cancel ends the ranks of a job of this node.
func (m *Manager) Cancel(id string) error {
	j, err := m.own(id)
	if err != nil {
		return err
	}
	a := m.activeJob(id)
	if a == nil || j.State.Final() {
		return outboard.Errorf(outboard.Conflict, "", "job %s has ended: its state is %s", id, j.State)
	}
	a.cancel(errCanceled)
	return nil
}

// Resume drives a failed or canceled job of this node again.
func (m *Manager) Resume(ctx context.Context, id string) error {
	a := m.activeJob(id)
	j, err := m.own(id)
	if err == nil && a != nil && (a.ending() || j.State.Final()) {
		select {
		case <-a.done:
		case <-ctx.Done():
			return ctx.Err()
		}
		j, err = m.own(id)
	}
	if err != nil {
		return err
	}
	if !j.State.Final() || j.State == client.JobSucceeded {
		return outboard.Errorf(outboard.Conflict, "", "job %s can't be resumed: it is %s", id, j.State)
	}
	j.State, j.Reason, j.Status, j.Ended, j.Spec.Detach = client.JobWaiting, "", 0, time.Time{}, true
	// The record changes only once the job is driven: another request may have resumed it.
	if a, err = m.drive(&j); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, writeLimit)
	defer cancel()
	if err := a.update(ctx, func(*client.Job) {}); err != nil {
		a.cancel(errCanceled)
		return err
	}
	return nil
}

// drive runs a job until it ends or the manager is closed.
func (m *Manager) drive(j *client.Job) (*activeJob, error) {
	lines, err := openLines(m.opts.Dir, j.ID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(m.life)
	a := &activeJob{manager: m, lines: lines, cancel: cancel, done: make(chan struct{}), ending: func() bool { return ctx.Err() != nil }, excluded: make(map[outboard.NodeID]exclusion), record: m.record(j)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.active[j.ID] != nil || m.life.Err() != nil {
		cancel(nil)
		return nil, errors.Join(outboard.Errorf(outboard.Conflict, "", "job %s runs already, or the node stops", j.ID), lines.Close())
	}
	m.active[j.ID] = a
	m.driving.Go(func() {
		defer cancel(nil)
		a.run(ctx)
		_ = a.lines.Close() // Lines that could not be written are lost.
		a.closeRecord(m.life)
		m.mu.Lock()
		delete(m.active, j.ID)
		m.mu.Unlock()
		close(a.done)
	})
	return a, nil
}
