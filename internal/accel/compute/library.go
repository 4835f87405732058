package compute

import (
	"context"
	"crypto/sha256"
	"slices"
	"sync"
)

// library holds the programs that were built in a session. Holders with the same source share one
// program, which is kept for a while after its last use.
type library struct {
	mu    sync.Mutex
	built map[sourceKey]*built
	idle  []*built // unused; the first has been idle longest
}

// maxIdle bounds the unused programs that are kept.
const maxIdle = 32

type sourceKey [sha256.Size]byte

func keyOf(source, options string) sourceKey {
	sum := sha256.New()
	for _, s := range []string{options, "\x00", source} {
		_, _ = sum.Write([]byte(s)) // it never fails
	}
	return sourceKey(sum.Sum(nil))
}

// built is a program on the device.
type built struct {
	key     sourceKey
	id      uint64
	kernels map[string]parameters
	ready   chan struct{} // closed when the program was built, or could not be
	// private reports that the program has variables, or could not be built; it is not shared.
	private bool
	users   int // under library.mu
}

// parameters describes the parameters of a kernel.
type parameters struct {
	count  int               // -1: unknown
	spaces map[uint16]uint32 // address spaces by index, as far as known
}

// acquire returns the program of a source. The caller must build it and publish the result if
// begun is true; otherwise it waits for ready.
func (l *library) acquire(key sourceKey) (b *built, begun bool) {
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

// publish marks a program as built, or as failed or private: then only the holder that built
// it uses it.
func (l *library) publish(b *built, own bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.private = own; own {
		delete(l.built, b.key)
	}
	close(b.ready)
}

// release ends one use of a program. It returns the ids of programs to be released on the
// device.
func (l *library) release(b *built) (unloaded []uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.users--
	switch {
	case b.users > 0:
		return nil
	case b.private:
		return []uint64{b.id}
	}
	l.idle = append(l.idle, b)
	for len(l.idle) > maxIdle {
		unloaded = append(unloaded, l.idle[0].id)
		delete(l.built, l.idle[0].key)
		l.idle = l.idle[1:]
	}
	return unloaded
}

// acquireProgram returns the program of a command's source: it builds the program, or waits
// for another holder that builds the same.
func (r *run) acquireProgram(i int, c *Command) (*built, error) {
	l := &r.holder.device.library
	for {
		b, begun := l.acquire(keyOf(c.source, c.options))
		if begun {
			err := r.build(i, c, b)
			l.publish(b, err != nil || b.private)
			return b, err
		}
		select {
		case <-b.ready:
		case <-r.ctx.Done():
			l.release(b)
			return nil, context.Cause(r.ctx)
		}
		if !b.private {
			return b, nil
		}
		l.release(b)
	}
}
