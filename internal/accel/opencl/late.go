package opencl

import (
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard/internal/accel/session"
)

// late is what others have found out about objects, for the dispatcher, to whom
// the table of objects belongs.
type late struct {
	count atomic.Int32
	mu    sync.Mutex
	news  []news
}

// news say what an id stands for from now on.
type news struct {
	id    uint64
	entry session.Entry
	// failed: the object is there, but what uses it has to fail.
	failed bool
}

func (l *late) add(n news) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news = append(l.news, n)
	l.count.Store(int32(len(l.news)))
}

func (l *late) take() []news {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.news
	l.news = nil
	l.count.Store(0)
	return all
}

// learn brings the table of objects up to date.
func (w *Worker) learn() {
	if w.late.count.Load() == 0 {
		return
	}
	for _, n := range w.late.take() {
		e, ok := w.objects.Any(n.id)
		switch {
		case !ok: // released meanwhile
		case n.failed:
			e.Failed = n.entry.Failed
			w.objects.Replace(n.id, e)
		default:
			w.objects.Replace(n.id, n.entry)
		}
	}
}

// await waits for an object that is still being made beside the dispatcher.
func (w *Worker) await(id uint64) {
	if made := w.making[id]; made != nil {
		<-made
		delete(w.making, id)
		w.learn()
	}
}

// promise enters an object that is being made beside the dispatcher. keep tells
// what became of it.
func (w *Worker) promise(c *call, kind session.Kind, id uint64) (keep func(handle uintptr, status int32)) {
	w.enter(c, kind, id, 0, invalid[kind])
	made := make(chan struct{})
	w.making[id] = made
	return func(handle uintptr, status int32) {
		e := session.Entry{Kind: kind, Handle: handle}
		if status != clSuccess {
			e.Failed = status
		}
		w.late.add(news{id: id, entry: e})
		close(made)
	}
}
