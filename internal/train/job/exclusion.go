package job

import (
	"time"

	"github.com/outboard-run/outboard"
)

// firstExclusion is how long the devices of a lost node are not used. The pool notices the death of
// a node earlier, by default. A node that it lists afterwards is alive, and only the connection to
// it was lost. Each further loss of the same node doubles the time.
const firstExclusion = 10 * time.Second

// An exclusion keeps a job from using the devices of a node that it has lost.
type exclusion struct {
	boot  string // of the node when it was lost
	limit time.Duration
	until time.Time
}

// exclude excludes a node that was lost.
func (a *activeJob) exclude(lost *lostError, now time.Time) {
	limit := firstExclusion
	if before, ok := a.excluded[lost.node]; ok && before.boot == lost.boot {
		limit = 2 * before.limit
	}
	a.excluded[lost.node] = exclusion{boot: lost.boot, limit: limit, until: now.Add(limit)}
}

// unusable returns the devices of excluded nodes that the pool lists, and when the first exclusion
// ends: the zero time if there is none. A node that is no longer listed, or has started again, is
// no longer excluded.
func (a *activeJob) unusable(now time.Time) (ids []outboard.DeviceID, until time.Time) {
	for id, e := range a.excluded {
		if n, ok := a.manager.opts.Leases.Node(id); !ok || n.Boot != e.boot {
			delete(a.excluded, id)
		} else if now.Before(e.until) && (until.IsZero() || e.until.Before(until)) {
			until = e.until
		}
	}
	for _, d := range a.manager.opts.Leases.Devices() {
		if e, lost := a.excluded[d.Node]; lost && now.Before(e.until) {
			ids = append(ids, d.ID)
		}
	}
	return ids, until
}
