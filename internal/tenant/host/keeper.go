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
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/tenant"
)

// keeper supervises one tenant's process: it starts the process again when it ends.
type keeper struct {
	host   *Host
	config tenant.Config
	cancel context.CancelFunc
	asked  time.Time // when the process was last requested, under Host.mu

	mu      sync.Mutex
	ready   bool
	err     error         // why it is not
	doing   string        // what the process does before it is ready
	changed chan struct{} // closed when ready or err changes
	process Launched      // nil: there is none
	node    *ipc.Conn     // to the process, while it is ready
}

// kill ends the process, which is then started again.
func (k *keeper) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.process != nil {
		k.process.Kill()
	}
}

func (k *keeper) setProcess(p Launched) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.process = p
}

// setConn sets the connection to the process, nil for none.
func (k *keeper) setConn(c *ipc.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.node = c
}

// conn returns the connection to the process, or an error if it is not ready.
func (k *keeper) conn() (*ipc.Conn, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.node == nil {
		return nil, outboard.Errorf(outboard.Unreachable, "the process of tenant "+k.config.Tenant, "it has ended, and is started again")
	}
	return k.node, nil
}

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	// endLimit is how long a process may take to end: the calls that it has accepted end first.
	endLimit = tenant.Grace + 10*time.Second
)

// run supervises the process until ctx ends.
func (k *keeper) run(ctx context.Context) {
	k.host.closeConns(ctx, k)
	for pause := firstPause; ; {
		begin := time.Now()
		err := k.once(ctx)
		if ctx.Err() != nil {
			k.set(false, outboard.Errorf(outboard.SessionLost, "", "this node is stopping"))
			return
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		k.host.log.Error("a tenant's process ended, and is started again", "tenant", k.config.Tenant, "error", err)
		k.set(false, err)
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
func (k *keeper) once(ctx context.Context) (err error) {
	if err := os.MkdirAll(k.config.Dir, 0o700); err != nil {
		return err
	}
	near, far, err := ipc.Pair(ipc.Options{MaxReceived: maxReady, WriteTimeout: k.host.opts.ReportInterval})
	if err != nil {
		return err
	}
	defer near.Close()
	proc, err := k.host.opts.Launch(far)
	if err := errors.Join(err, far.Close()); err != nil {
		return err
	}
	group, err := k.enterGroup(proc)
	defer func() { err = errors.Join(err, group.Remove()) }()
	if err != nil {
		proc.Kill()
		return errors.Join(err, proc.Wait())
	}
	k.setProcess(proc)
	defer k.setProcess(nil)
	ended := make(chan error, 1)
	go func() { ended <- proc.Wait() }()
	unblock := context.AfterFunc(ctx, func() { _ = near.Close() })
	err = k.start(ctx, near)
	unblock()
	if err != nil {
		proc.Kill()
		return whyNot(err, <-ended)
	}
	k.setConn(near)
	k.set(true, nil)
	defer k.setConn(nil)
	k.host.running.Go(func() { near.Serve((*ipc.Message).Close) }) // receives replies
	k.host.running.Go(func() { k.host.sendMembers(ctx, k.config.Tenant) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	k.set(false, outboard.Errorf(outboard.SessionLost, "", "the tenant has no apps any more"))
	return end(near, proc, ended)
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

// whyNot joins the error that kept a process from being ready with the error of its end, in one
// line.
func whyNot(err, end error) error {
	switch {
	case end == nil:
		return err
	case errors.Is(err, errGone):
		return fmt.Errorf("%w: %w", errGone, end)
	}
	return fmt.Errorf("%w (%w)", err, end)
}

// start sends the process its configuration, and waits until it is ready.
func (k *keeper) start(ctx context.Context, near *ipc.Conn) error {
	config := k.config
	config.Members = k.host.known()
	if err := near.Send(tenant.TypeConfig, config); err != nil {
		return fmt.Errorf("%w: tell it what it is: %w", errGone, err)
	}
	begin := time.Now()
	for {
		r, err := receiveReady(near, k.host.opts.ReportInterval)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			k.host.log.Warn("a tenant's process is not ready yet", "tenant", k.config.Tenant, "after", time.Since(begin).Round(time.Second), "doing", k.doesNow())
			if time.Since(begin) >= k.host.opts.StartLimit {
				return fmt.Errorf("it was not ready after %v, and was ended: %s", k.host.opts.StartLimit, k.doesNow())
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
			k.does(r.Doing)
		default:
			k.host.log.Info("a tenant's process is up", "tenant", k.config.Tenant, "pid", r.PID)
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

func (k *keeper) set(ready bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready, k.err, k.doing = ready, err, ""
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *keeper) isReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ready
}

// does records what the process does before it is ready.
func (k *keeper) does(what string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.doing = what
}

// doesNow returns what the process does now.
func (k *keeper) doesNow() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return cmp.Or(k.doing, "it has not said yet what it does")
}

// await waits until the process is ready, could not be started, or takes too long.
func (k *keeper) await(ctx context.Context) error {
	late := time.NewTimer(k.host.opts.ReadyTimeout)
	defer late.Stop()
	for {
		k.mu.Lock()
		ready, err, changed := k.ready, k.err, k.changed
		k.mu.Unlock()
		switch {
		case ready:
			return nil
		case err != nil:
			return outboard.Errorf(outboard.Unreachable, "the process of tenant "+k.config.Tenant, "%w", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-late.C:
			return outboard.Errorf(outboard.Unreachable, "the process of tenant "+k.config.Tenant, "it is not ready after %v: %s; try again later", k.host.opts.ReadyTimeout, k.doesNow())
		case <-changed:
		}
	}
}
