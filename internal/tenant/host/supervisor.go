package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/tenant"
)

// supervisor supervises one tenant's process: it starts the process again when it ends.
type supervisor struct {
	host          *Host
	config        tenant.Config
	cancel        context.CancelFunc
	sending       sync.Mutex // held while the process is sent the nodes of the pool
	lastRequested time.Time  // when the process was last requested, under Host.mu

	mu      sync.Mutex
	ready   bool
	err     error         // why it is not
	doing   string        // what the process does before it is ready
	changed chan struct{} // closed when ready or err changes
	process Launched      // nil: there is none
	group   *cgroup.Group // of the process, and of those that it starts; nil for none
	node    *ipc.Conn     // to the process, while it is ready
}

// kill ends the process, which is then started again.
func (s *supervisor) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		s.process.Kill()
	}
}

func (s *supervisor) setProcess(p Launched, group *cgroup.Group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process, s.group = p, group
}

// setConn sets the connection to the process, nil for none.
func (s *supervisor) setConn(c *ipc.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.node = c
}

// conn returns the connection to the process, or an error if it is not ready.
func (s *supervisor) conn() (*ipc.Conn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return nil, outboard.Errorf(outboard.Unreachable, "the process of tenant "+s.config.Tenant, "it has ended, and is started again")
	}
	return s.node, nil
}

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	// endLimit is how long a process may take to end: the calls that it has accepted end first.
	endLimit = tenant.Grace + 10*time.Second
)

// run supervises the process until ctx ends.
func (s *supervisor) run(ctx context.Context) {
	s.host.closeConns(ctx, s)
	for pause := firstPause; ; {
		begin := time.Now()
		err := s.once(ctx)
		if ctx.Err() != nil {
			s.set(false, outboard.Errorf(outboard.SessionLost, "", "this node is stopping"))
			return
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		s.host.log.Error("a tenant's process ended, and is started again", "tenant", s.config.Tenant, "error", err)
		s.set(false, err)
		if time.Since(begin) > lastPause {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, lastPause)
	}
}

// once starts a process and waits for its end.
func (s *supervisor) once(ctx context.Context) (err error) {
	if err := os.MkdirAll(s.config.Dir, 0o700); err != nil {
		return err
	}
	near, far, err := ipc.Pair(ipc.Options{MaxReceived: maxReady, WriteTimeout: s.host.opts.ReportInterval})
	if err != nil {
		return err
	}
	defer near.Close()
	proc, err := s.host.opts.Launch(far)
	if err := errors.Join(err, far.Close()); err != nil {
		return err
	}
	group, err := s.enterGroup(proc)
	defer func() {
		err = errors.Join(err, group.Remove())
		s.setProcess(nil, nil) // after Remove: Owns has to recognize the processes that it ends
	}()
	if err != nil {
		proc.Kill()
		return errors.Join(err, proc.Wait())
	}
	s.setProcess(proc, group)
	ended := make(chan error, 1)
	go func() { ended <- proc.Wait() }()
	unblock := context.AfterFunc(ctx, func() { _ = near.Close() })
	err = s.start(ctx, near)
	unblock()
	if err != nil {
		proc.Kill()
		return joinReasons(err, <-ended)
	}
	s.setConn(near)
	s.set(true, nil)
	defer s.setConn(nil)
	s.host.running.Go(func() { near.Serve((*ipc.Message).Close) }) // receives replies
	s.host.running.Go(func() { s.sendMembers(ctx) })
	s.host.running.Go(func() { s.watch(ctx, near, proc) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	s.set(false, outboard.Errorf(outboard.SessionLost, "", "the tenant has no apps any more"))
	return end(near, proc, ended)
}

// watch kills a process that does not respond to pings.
func (s *supervisor) watch(ctx context.Context, near *ipc.Conn, proc Launched) {
	limit := s.host.opts.PingLimit
	if helper.Watch(ctx, near, helper.Pings{Kind: tenant.TypePing, Interval: s.host.opts.PingInterval, Limit: limit}) {
		s.host.log.Error("a tenant's process does not respond, and is killed", "tenant", s.config.Tenant, "after", limit)
		proc.Kill()
	}
}

// end waits for a process to end by itself, and then kills it.
func end(near *ipc.Conn, proc Launched, ended <-chan error) error {
	_ = near.Close()
	select {
	case err := <-ended:
		return err
	case <-time.After(endLimit):
		proc.Kill()
		return <-ended
	}
}

// errGone is the error of a process that ended before it was ready; the error of its end has the
// reason.
var errGone = errors.New("it ended before it was ready")

// joinReasons joins the error that kept a process from being ready with the error of its end, in one
// line.
func joinReasons(err, end error) error {
	switch {
	case end == nil:
		return err
	case errors.Is(err, errGone):
		return fmt.Errorf("%w: %w", errGone, end)
	}
	return fmt.Errorf("%w (%w)", err, end)
}

// start sends the process its configuration, and waits until it is ready.
func (s *supervisor) start(ctx context.Context, near *ipc.Conn) error {
	config := s.config
	config.Members = s.host.known()
	if err := near.Send(tenant.TypeConfig, config); err != nil {
		return fmt.Errorf("%w: tell it what it is: %w", errGone, err)
	}
	begin := time.Now()
	for {
		r, err := receiveReady(near, s.host.opts.ReportInterval)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			s.host.log.Warn("a tenant's process is not ready yet", "tenant", s.config.Tenant, "after", time.Since(begin).Round(time.Second), "doing", s.activity())
			if time.Since(begin) >= s.host.opts.StartLimit {
				return fmt.Errorf("it was not ready after %v, and was ended: %s", s.host.opts.StartLimit, s.activity())
			}
			continue
		case outboard.KindOf(err) == outboard.Protocol:
			return err
		case err != nil:
			return errGone
		}
		switch {
		case r.Error != "":
			return errors.New(r.Error)
		case r.Doing != "":
			s.setActivity(r.Doing)
		default:
			s.host.log.Info("a tenant's process is up", "tenant", s.config.Tenant, "pid", r.PID)
			return nil
		}
	}
}

// maxReady bounds a message of a process in bytes.
const maxReady = 64 << 10

// receiveReady waits for a process's next message, at most for the given time.
func receiveReady(near *ipc.Conn, within time.Duration) (tenant.Ready, error) {
	var r tenant.Ready
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	m, err := near.Receive(ctx)
	if err != nil {
		return r, err
	}
	defer m.Close()
	if m.Type != tenant.TypeReady {
		return r, outboard.Errorf(outboard.Protocol, "", "the process sent an unexpected message of type %.40q", m.Type)
	}
	return r, m.Decode(&r)
}

func (s *supervisor) set(ready bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready, s.err, s.doing = ready, err, ""
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *supervisor) isReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ready
}

// setActivity records what the process does before it is ready.
func (s *supervisor) setActivity(activity string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.doing = activity
}

// activity returns what the process does now.
func (s *supervisor) activity() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cmp.Or(s.doing, "it has not said yet what it does")
}

// await waits until the process is ready, could not be started, or takes too long.
func (s *supervisor) await(ctx context.Context) error {
	late := time.NewTimer(s.host.opts.ReadyTimeout)
	defer late.Stop()
	for {
		s.mu.Lock()
		ready, err, changed := s.ready, s.err, s.changed
		s.mu.Unlock()
		switch {
		case ready:
			return nil
		case err != nil:
			return outboard.Errorf(outboard.Unreachable, "the process of tenant "+s.config.Tenant, "%w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return outboard.Errorf(outboard.Unreachable, "the process of tenant "+s.config.Tenant, "it is not ready after %v: %s; try again later", s.host.opts.ReadyTimeout, s.activity())
		case <-changed:
		}
	}
}
