package lend

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/rmtree"
)

// compiles fills caches of compiled kernels after sessions. A session records in recipes which
// programs and kernels its driver compiled; a process that executes no kernel compiles them again
// into the cache. One such process runs at a time, with low priority.
type compiles struct {
	host *Host
	done chan struct{}
	stop context.CancelFunc
	jobs chan *compileJob

	mu      sync.Mutex
	queued  map[string]bool // caches with a job
	current *compileJob
}

// compileJob is a queued or running compile step.
type compileJob struct {
	spec    Spec
	cache   cacheUse
	recipes *os.File
	limit   time.Duration

	draft   *cacheUse
	process *process
}

const (
	// maxCompileJobs bounds the queued jobs: when a session's job is refused, its kernels are
	// compiled again next time.
	maxCompileJobs = 32
	// compileShare is how many times as long as its session a job may take, within the bounds that
	// follow: with its weight it can need that to do the same work beside sessions. Its results up
	// to then are kept, and the next session's job does the rest.
	compileShare    = 4
	minCompileLimit = 2 * time.Minute
	maxCompileLimit = 30 * time.Minute
	// compileWeight is a job's share of processor time, against 100 of a session.
	compileWeight = 10
	// maxRecipes bounds the recipes of a session in bytes.
	maxRecipes = 32 << 20
)

func newCompiles(h *Host) *compiles {
	ctx, stop := context.WithCancel(context.Background())
	c := &compiles{host: h, done: make(chan struct{}), stop: stop, jobs: make(chan *compileJob, maxCompileJobs), queued: map[string]bool{}}
	go c.run(ctx)
	return c
}

// close stops the running job and drops the others.
func (c *compiles) close() {
	c.stop()
	<-c.done
}

// newRecipes creates the file for a session's recipes; nil where no compile step can follow: it
// needs a cache that is kept and that only compile steps can change.
func (h *Host) newRecipes() *os.File {
	if h.opts.Sandbox.NoCache || !h.isolation.Layered {
		return nil
	}
	fd, err := unix.MemfdCreate("recipes", unix.MFD_CLOEXEC)
	if err != nil {
		return nil
	}
	return os.NewFile(uintptr(fd), "recipes")
}

// enqueue queues a compile step for the recipes of an ended session, if there are any.
func (c *compiles) enqueue(s *Session) {
	if s.recipes == nil {
		return
	}
	job := &compileJob{spec: s.Spec, cache: s.cache, recipes: s.recipes, limit: compileLimit(time.Since(s.Started))}
	if !c.accept(job) {
		_ = job.recipes.Close()
	}
}

// compileLimit returns how long the job of a session may take that took the given time.
func compileLimit(session time.Duration) time.Duration {
	return min(max(compileShare*session, minCompileLimit), maxCompileLimit)
}

func (c *compiles) accept(job *compileJob) bool {
	info, err := job.recipes.Stat()
	if err != nil || info.Size() == 0 || info.Size() > maxRecipes && job.recipes.Truncate(maxRecipes) != nil {
		return false
	}
	if _, err := job.recipes.Seek(0, 0); err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := job.cache.name // run changes job.cache
	if c.queued[name] {
		return false // the next session records the kernels that are missing then
	}
	select {
	case c.jobs <- job:
		c.queued[name] = true
		c.host.metrics.compiles.Inc()
		return true
	default:
		return false
	}
}

func (c *compiles) run(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-ctx.Done():
			return
		case job := <-c.jobs:
			if err := c.buildGeneration(ctx, job); err != nil && ctx.Err() == nil {
				c.host.opts.Log.Warn("kernels are compiled again in the next session", "program", job.spec.Lease.Program, "error", err)
			}
			_ = job.recipes.Close()
			c.mu.Lock()
			delete(c.queued, job.cache.name)
			c.mu.Unlock()
			c.host.metrics.compiles.Dec()
		}
	}
}

// buildGeneration creates the next generation of a cache.
func (c *compiles) buildGeneration(ctx context.Context, job *compileJob) error {
	h := c.host
	from, err := h.caches.acquire(job.spec.Lease)
	if err != nil {
		return err
	}
	defer h.caches.release(from)
	job.cache = from
	if job.draft, err = h.caches.draft(&from); err != nil {
		return err
	}
	tmp := filepath.Join(h.tmp(), "compile")
	defer func() { _ = rmtree.Remove(tmp) }() // what is left is removed at the next start
	if err := c.compile(ctx, job, tmp); err != nil {
		h.caches.discard(job.draft)
		return err
	}
	return h.caches.commit(job.draft)
}

// compile runs the compile step's process until it has finished or exceeded its limit.
func (c *compiles) compile(ctx context.Context, job *compileJob, tmp string) error {
	h := c.host
	config, err := h.sandboxConfig(tmp, job.cache.uid)
	if err != nil {
		return err
	}
	ours, theirs, err := control.Pair()
	if err != nil {
		return err
	}
	defer ours.Close()
	job.process, err = h.startProcess(tmp, nil, job.recipes, theirs)
	_ = theirs.Close()
	if err != nil {
		return err
	}
	err = c.enterGroup(job)
	if err == nil {
		c.setCurrent(job)
		err = c.converse(ctx, ours, job, control.Config{
			Session: "compile", Sandbox: config, Require: h.opts.Sandbox.Require, Cgroup: job.process.group != nil, Compile: true,
			API: job.spec.Device.API, Device: job.spec.Index, DeviceName: job.spec.Device.Name, CacheDir: job.draft.dir, TmpDir: tmp,
		})
		c.setCurrent(nil)
	}
	job.process.kill()
	_ = job.process.wait()
	return errors.Join(err, job.process.group.Remove())
}

func (c *compiles) enterGroup(job *compileJob) (err error) {
	h := c.host
	job.process.group, err = h.opts.Groups.Make("compile", cgroup.Limits{
		Memory: groupMemory(&job.spec, h.opts.Sandbox.Memory), Tasks: maxTasks, Weight: compileWeight,
	})
	if err != nil {
		return err
	}
	return job.process.group.Add(job.process.pid())
}

// converse sends the process its configuration and waits for its last message.
func (c *compiles) converse(ctx context.Context, conn *control.Conn, job *compileJob, config control.Config) error {
	limit := time.AfterFunc(job.limit, job.process.kill)
	defer limit.Stop()
	stop := context.AfterFunc(ctx, job.process.kill)
	defer stop()
	if err := conn.Send(control.Message{Type: control.TypeConfig, Config: &config}); err != nil {
		return err
	}
	for {
		m, err := conn.Receive()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return nil // it was killed; the programs that it has compiled are complete
		case m.Type == control.TypeFinal && m.Reason != "":
			return outboard.Errorf(m.Kind, "compile", "%s", m.Reason)
		case m.Type == control.TypeFinal:
			return nil
		}
	}
}

func (c *compiles) setCurrent(job *compileJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = job
}

// watch kills a compile step that writes too much.
func (c *compiles) watch() {
	c.mu.Lock()
	job := c.current
	c.mu.Unlock()
	if job != nil && sizeOf(job.draft.dir) > 2*c.host.caches.limit {
		job.process.kill()
	}
}
