package lend

import (
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/lograte"
)

// leaseKey names a lease. Its holder chooses the ID, which may be that of another holder's lease, or of
// another device's.
type leaseKey struct {
	device outboard.DeviceID
	holder outboard.NodeID
	lease  outboard.LeaseID
}

func keyOf(l *outboard.Lease) leaseKey { return leaseKey{l.Device, l.Holder, l.Lease} }

// accountOf names the account of a lease among those of its device.
func accountOf(l *outboard.Lease) outboard.LeaseID {
	return outboard.LeaseID(l.Holder) + "/" + l.Lease
}

// leaseState is the state that all sessions of one lease share: device memory, log lines and the
// number of sessions. Each of a program's processes has a session, so a limit per session would not
// bound the program.
type leaseState struct {
	memory  outboard.Bytes // of the device; 0: no limit
	members int            // the host's lock guards it

	grouping sync.Mutex
	group    *cgroup.Group // of all its sessions; nil before the first one starts
	priority *leasePriority

	mu      sync.Mutex
	granted map[outboard.SessionID]outboard.Bytes
	workers map[outboard.SessionID]*control.Conn
	waiting []*memoryRequest

	lines lograte.Limit // of the log
}

// memoryRequest is a worker's request for device memory that other sessions may return.
type memoryRequest struct {
	session outboard.SessionID
	bytes   outboard.Bytes
	asked   map[outboard.SessionID]bool // sessions that have not said yet what they can return
	timer   *time.Timer
}

// reclaimLimit is how long a request waits for sessions that do not say what they can return. A worker
// that starts holds all of a lease's memory, and loads its driver for seconds on a busy machine.
const reclaimLimit = 10 * time.Second

func newLeaseState(memory outboard.Bytes) *leaseState {
	return &leaseState{
		memory: memory, priority: &leasePriority{},
		granted: map[outboard.SessionID]outboard.Bytes{}, workers: map[outboard.SessionID]*control.Conn{},
	}
}

// join adds a session and returns its initial grant of the lease's memory: everything that is free and
// that no other session waits for; nil without a limit. Other sessions reclaim the unused part when
// they need it.
func (l *leaseState) join(id outboard.SessionID, worker *control.Conn) *outboard.Bytes {
	if l.memory == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.workers[id] = worker
	granted := l.free()
	if len(l.waiting) > 0 {
		granted = 0
	}
	l.granted[id] = granted
	return &granted
}

func (l *leaseState) leave(id outboard.SessionID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.granted, id)
	delete(l.workers, id)
	for _, r := range l.waiting {
		if r.session == id {
			r.timer.Stop()
			r.bytes = 0
		}
		delete(r.asked, id)
	}
	l.serve()
}

// free returns the memory that is not granted to any session.
func (l *leaseState) free() outboard.Bytes {
	free := l.memory
	for _, n := range l.granted {
		free -= min(free, n)
	}
	return free
}

// handleMessage handles a worker's message about memory, and reports whether it was one.
func (l *leaseState) handleMessage(id outboard.SessionID, m control.Message) bool {
	switch m.Type {
	case control.TypeReserve:
		l.reserve(id, m.Bytes)
	case control.TypeRelease:
		l.release(id, m.Bytes)
	default:
		return false
	}
	return true
}

// reserve answers a request at once if enough memory is free, and otherwise asks the other sessions
// for their unused memory.
func (l *leaseState) reserve(id outboard.SessionID, bytes outboard.Bytes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.granted[id]; !ok {
		return
	}
	for _, r := range l.waiting {
		if r.session == id {
			return // a worker waits for one answer at a time
		}
	}
	r := &memoryRequest{session: id, bytes: bytes, asked: map[outboard.SessionID]bool{}}
	for other := range l.workers {
		if other != id {
			r.asked[other] = true
		}
	}
	l.waiting = append(l.waiting, r)
	r.timer = time.AfterFunc(reclaimLimit, func() { l.expire(r) })
	if l.serve(); !slices.Contains(l.waiting, r) {
		return
	}
	for other := range r.asked {
		_ = l.workers[other].Send(control.Message{Type: control.TypeReclaim})
	}
}

// release returns memory that was granted to a session, which has no more to return.
func (l *leaseState) release(id outboard.SessionID, bytes outboard.Bytes) {
	l.mu.Lock()
	defer l.mu.Unlock()
	have, ok := l.granted[id]
	if !ok {
		return
	}
	l.granted[id] = have - min(have, bytes)
	for _, r := range l.waiting {
		delete(r.asked, id)
	}
	l.serve()
}

// serve grants every request that can be granted, and refuses every request for which no session can
// return more.
func (l *leaseState) serve() {
	kept := l.waiting[:0]
	for _, r := range l.waiting {
		switch {
		case r.bytes == 0:
		case r.bytes <= l.free():
			l.answer(r, r.bytes)
		case r.bytes > l.memory || len(r.asked) == 0:
			l.answer(r, 0)
		default:
			kept = append(kept, r)
		}
	}
	clear(l.waiting[len(kept):])
	l.waiting = kept
}

func (l *leaseState) answer(r *memoryRequest, bytes outboard.Bytes) {
	r.timer.Stop()
	l.granted[r.session] += bytes
	if worker := l.workers[r.session]; worker != nil {
		// A worker that does not read its socket ends by its own reader's error.
		_ = worker.Send(control.Message{Type: control.TypeQuota, Bytes: bytes})
	}
}

// expire refuses a request that some session has not answered in time.
func (l *leaseState) expire(r *memoryRequest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, waiting := range l.waiting {
		if waiting == r {
			l.answer(r, 0)
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			return
		}
	}
}
