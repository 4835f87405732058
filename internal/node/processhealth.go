package node

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/calls"
	"github.com/outboard-run/outboard/internal/health"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// minDiskFree is the free space below which the disk of the data folder is reported. The pool's
// state needs some megabytes to recover after a restart of its server.
const minDiskFree = 8 << 20

// diskHealth reports a full disk under a folder.
type diskHealth struct{ dir string }

// Health implements healthSource. Its error names no path, since it is shown to users.
func (d *diskHealth) Health() error {
	var s unix.Statfs_t
	if err := unix.Statfs(d.dir, &s); err != nil {
		return outboard.Errorf(outboard.Unreachable, "the node's data folder", "%w", err)
	}
	free := outboard.Bytes(s.Bavail) * outboard.Bytes(s.Bsize) //nolint:gosec // A disk has less than 2^63 bytes.
	switch {
	case s.Flags&unix.ST_RDONLY != 0:
		return outboard.Errorf(outboard.Unreachable, "the node's data folder", "its file system is mounted read-only: mount it writable")
	case free < minDiskFree:
		return outboard.Errorf(outboard.Exhausted, "the node's data folder", "its disk has %v left: free space on it", free)
	case s.Files > 0 && s.Ffree == 0:
		return outboard.Errorf(outboard.Exhausted, "the node's data folder", "its disk has no room for more files: remove some")
	}
	return nil
}

const (
	healthInterval = time.Second
	// healthTimeout is how long a process may take to answer before it is reported.
	healthTimeout = 3 * time.Second
)

// processHealth reports the calls' process and the tenants' processes while they do not run, do not
// answer, or cannot write their data.
type processHealth struct {
	calls   *calls.Host
	tenants *host.Host
	board   *health.Board
}

func (p *processHealth) run(ctx context.Context, ready func()) error {
	ready()
	ticks := time.NewTicker(healthInterval)
	defer ticks.Stop()
	for {
		var both sync.WaitGroup
		both.Go(func() { p.check(ctx, "calls", p.calls.Health) })
		both.Go(func() { p.check(ctx, "functions", p.tenants.Health) })
		both.Wait()
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// check reports the health of a plane, unless ctx ends.
func (p *processHealth) check(ctx context.Context, plane string, healthOf func(context.Context) error) {
	checked, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	if err := healthOf(checked); ctx.Err() == nil {
		p.board.Report(plane, err)
	}
}
