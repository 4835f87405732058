package calls

import (
	"context"
	"errors"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/ipc"
)

// Upgrade replaces the process that carries the node's calls by one of program, "" for the node's
// own. Calls in flight go on. If it fails, the present process goes on.
func (h *Host) Upgrade(ctx context.Context, program string) (client.Upgrade, error) {
	const op = "upgrade"
	select {
	case h.replacing <- struct{}{}:
		defer func() { <-h.replacing }()
	default:
		return client.Upgrade{}, outboard.Errorf(outboard.Conflict, op, "another upgrade is in progress: try again")
	}
	began := time.Now()
	old := h.currentChild()
	next, err := h.launch(ctx, program)
	if err != nil {
		return client.Upgrade{}, notReplaced(op, err)
	}
	// The caller may leave now: the upgrade goes on to its end.
	ctx, cancel := context.WithTimeout(h.life, startLimit)
	defer cancel()
	paused := time.Now()
	if err := h.passListeners(ctx, old, next); err != nil {
		next.kill()
		return client.Upgrade{}, notReplaced(op, err)
	}
	h.program = program
	now := time.Now()
	u := client.Upgrade{
		Node: h.opts.Config.Self, From: old.describe(), To: next.describe(),
		Took: client.Duration(now.Sub(began)), Pause: client.Duration(now.Sub(paused)),
	}
	// An old process that has died has no calls in flight.
	if inFlight, err := old.drain(ctx); err == nil {
		u.Calls, u.Streams = inFlight.Calls, inFlight.Streams
	}
	h.sendHeld()
	h.log.Info("another process carries calls", "from", u.From.Version, "to", u.To.Version, "process", u.To.Number,
		"pid", u.To.PID, "calls", u.Calls, "streams", u.Streams)
	return u, nil
}

func notReplaced(op string, err error) error {
	return outboard.Errorf(outboard.KindOf(err), op, "%w; the process that carries calls was not replaced", err)
}

// passListeners makes one process stop accepting connections, and then another accept them.
// Connections made in between wait in the sockets' backlogs.
func (h *Host) passListeners(ctx context.Context, old, next *child) error {
	paused, err := old.conn.Call(ctx, msgPause, nil)
	if err != nil && old.alive() {
		return errors.Join(err, old.serve(ctx, h.files))
	}
	if err == nil {
		next.restorePolicies(ctx, paused)
	}
	if err := next.serve(ctx, h.files); err != nil {
		err = next.withExitReason(err)
		if old.alive() {
			err = errors.Join(err, old.serve(ctx, h.files))
		}
		return err
	}
	h.setCurrent(next)
	return nil
}

// restorePolicies passes the policies' state from the previous process. The program of either
// process may be too old to pass or to restore it: then the policies begin without state.
func (c *child) restorePolicies(ctx context.Context, paused *ipc.Message) {
	defer paused.Close()
	f := paused.File()
	if f == nil {
		return
	}
	defer f.Close()
	m, err := c.conn.Call(ctx, msgRestore, nil, f)
	if err != nil {
		c.host.log.Warn("the policies begin without state in the process that takes over", "error", err)
		return
	}
	m.Close()
}
