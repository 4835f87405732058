package compute

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
)

// A library is the programs that were built in a session. Holders of one source share
// what was built of it; that stays a while when nobody uses it.
type library struct {
	mu    sync.Mutex
	built map[sourceKey]*built
	idle  []*built // nobody uses them; the first has been idle longest
}

// maxIdle is how many programs are kept that nobody uses.
const maxIdle = 32

type sourceKey [sha256.Size]byte

func keyOf(source, options string) sourceKey {
	sum := sha256.New()
	for _, s := range []string{options, "\x00", source} {
		_, _ = sum.Write([]byte(s)) // it never fails
	}
	return sourceKey(sum.Sum(nil))
}

// A built is a program on the device.
type built struct {
	key     sourceKey
	id      uint64
	kernels map[string]parameters
	ready   chan struct{} // closed when it was built, or could not be
	// own says that it has variables, or could not be built: nobody else gets it.
	own   bool
	users int // under library.mu
}

// parameters are what a kernel wants.
type parameters struct {
	count  int               // -1 if nobody knows
	spaces map[uint16]uint32 // where they lie, by their index, as far as that is known
}

// take finds a program, or begins one that the caller has to build.
func (l *library) take(key sourceKey) (b *built, begun bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.built[key]; b != nil {
		b.users++
		l.idle = slices.DeleteFunc(l.idle, func(i *built) bool { return i == b })
		return b, false
	}
	if l.built == nil {
		l.built = map[sourceKey]*built{}
	}
	b = &built{key: key, ready: make(chan struct{}), users: 1}
	l.built[key] = b
	return b, true
}

// done tells those who wait for a program what became of it.
func (l *library) done(b *built, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.own = own; own {
		delete(l.built, b.key)
	}
	close(b.ready)
}

// give ends one use. It returns the programs that are to be released.
func (l *library) give(b *built) (gone []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.users--
	switch {
	case b.users > 0:
		return nil
	case b.own:
		return []uint64{b.id}
	}
	l.idle = append(l.idle, b)
	for len(l.idle) > maxIdle {
		gone = append(gone, l.idle[0].id)
		delete(l.built, l.idle[0].key)
		l.idle = l.idle[1:]
	}
	return gone
}

// builtOf finds a program, waits for who builds it, or builds it.
func (r *run) builtOf(i int, c *Command) (*built, error) {
	l := &r.holder.device.library
	for {
		b, begun := l.take(keyOf(c.source, c.options))
		if begun {
			err := r.build(i, c, b)
			l.done(b, err != nil || b.own)
			return b, err
		}
		select {
		case <-b.ready:
		case <-r.ctx.Done():
			l.give(b)
			return nil, context.Cause(r.ctx)
		}
		if !b.own {
			return b, nil
		}
		l.give(b)
	}
}
