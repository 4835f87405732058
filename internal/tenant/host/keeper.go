package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/tenant"
)

// A keeper keeps one tenant's process: it starts it again when it ends.
type keeper struct {
	host   *Host
	config tenant.Config
	cancel context.CancelFunc
	asked  time.Time // when somebody wanted it last, under Host.mu

	mu      sync.Mutex
	ready   bool
	err     error         // why it is not
	changed chan struct{} // closed when ready or err changes
}

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 10 * time.Second
	// startLimit is long: on a busy machine a process builds its apps for a minute, and
	// one that is killed meanwhile begins again.
	startLimit = 3 * time.Minute
	endLimit   = 10 * time.Second
)

// run keeps the process until ctx ends.
func (k *keeper) run(ctx context.Context) {
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

// once is the life of one process.
func (k *keeper) once(ctx context.Context) error {
	if err := os.MkdirAll(k.config.Dir, 0o700); err != nil {
		return err
	}
	near, far, err := pair()
	if err != nil {
		return err
	}
	defer near.Close()
	proc, err := k.host.opts.Launch(far)
	if err := errors.Join(err, far.Close()); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- proc.Wait() }()
	if err := k.start(near); err != nil {
		proc.Kill()
		return errors.Join(err, <-ended)
	}
	k.set(true, nil)
	k.host.running.Go(func() { k.host.tell(ctx, k.config.Tenant) })
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	k.set(false, outboard.Errorf(outboard.SessionLost, "", "the tenant has no apps any more"))
	return end(near, proc, ended)
}

// end has a process end in good order, if it does.
func end(near net.Conn, proc Launched, ended <-chan error) error {
	_ = near.Close()
	select {
	case err := <-ended:
		return err
	case <-time.After(endLimit):
		proc.Kill()
		return <-ended
	}
}

// start tells the process what it is, and waits until it is ready.
func (k *keeper) start(near net.Conn) error {
	if err := near.SetDeadline(time.Now().Add(startLimit)); err != nil {
		return err
	}
	config := k.config
	config.Members = k.host.known()
	if err := json.NewEncoder(near).Encode(config); err != nil {
		return fmt.Errorf("tell the process what it is: %w", err)
	}
	line, err := bufio.NewReader(near).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("wait until the process is ready: %w", err)
	}
	var r tenant.Ready
	if err := json.Unmarshal(line, &r); err != nil {
		return fmt.Errorf("read the process's answer: %w", err)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	k.host.log.Info("a tenant's process is up", "tenant", k.config.Tenant, "pid", r.PID)
	return near.SetDeadline(time.Time{})
}

func (k *keeper) set(ready bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ready, k.err = ready, err
	close(k.changed)
	k.changed = make(chan struct{})
}

func (k *keeper) isReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ready
}

// await waits until the process is ready, or could not be started.
func (k *keeper) await(ctx context.Context) error {
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
		case <-changed:
		}
	}
}

// pair makes a connection whose far end another process gets.
func pair() (near net.Conn, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	own, far := os.NewFile(uintptr(fds[0]), "tenant"), os.NewFile(uintptr(fds[1]), "node")
	defer own.Close()
	if near, err = net.FileConn(own); err != nil {
		return nil, nil, errors.Join(err, far.Close())
	}
	return near, far, nil
}
