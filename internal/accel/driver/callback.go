package driver

import (
	"sync"

	"github.com/ebitengine/purego"
)

// Callbacks are the addresses of functions that a driver may call, one per signature: a process can
// only have a limited number of them. The user_data of a call, a token, identifies the Go function
// to run.
//
// A driver calls from threads of its own, possibly while it holds its locks: a registered function
// must neither block nor call the driver.
//
// The zero value is for drivers without callbacks: its addresses are 0.
type Callbacks struct {
	event, build, context uintptr

	mu    sync.Mutex
	next  uintptr
	funcs map[uintptr]callback
}

type callback struct {
	once bool
	call func(a, b, c uintptr)
}

// NewCallbacks creates the addresses. Call it once per process.
func NewCallbacks() *Callbacks {
	c := &Callbacks{funcs: make(map[uintptr]callback)}
	c.event = purego.NewCallback(func(event, status, token uintptr) uintptr {
		c.run(token, event, status, 0)
		return 0
	})
	c.build = purego.NewCallback(func(program, token uintptr) uintptr {
		c.run(token, program, 0, 0)
		return 0
	})
	c.context = purego.NewCallback(func(text, private, size, token uintptr) uintptr {
		c.run(token, text, private, size)
		return 0
	})
	return c
}

// Event registers a callback of the signature void (*)(handle, int32, token); it is called once.
func (c *Callbacks) Event(call func(status int32)) (addr, token uintptr) {
	return c.event, c.add(true, func(_, status, _ uintptr) { call(int32(status)) })
}

// Build registers a callback of the signature void (*)(handle, token); it is called once.
func (c *Callbacks) Build(call func()) (addr, token uintptr) {
	return c.build, c.add(true, func(_, _, _ uintptr) { call() })
}

// Context registers a callback of the signature void (*)(text, private, size, token); it is called
// until Drop. Its arguments are copies.
func (c *Callbacks) Context(call func(text string, private []byte)) (addr, token uintptr) {
	return c.context, c.add(false, func(text, private, size uintptr) {
		call(String(text, maxErrorText), append([]byte(nil), Bytes(private, min(int(size), maxErrorText))...))
	})
}

const maxErrorText = 64 << 10

func (c *Callbacks) add(once bool, call func(a, b, c uintptr)) uintptr {
	if c.funcs == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next++
	c.funcs[c.next] = callback{once, call}
	return c.next
}

// Drop removes a token; later calls with it have no effect.
func (c *Callbacks) Drop(token uintptr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.funcs, token)
}

func (c *Callbacks) run(token, a, b, d uintptr) {
	c.mu.Lock()
	f, ok := c.funcs[token]
	if ok && f.once {
		delete(c.funcs, token)
	}
	c.mu.Unlock()
	if ok {
		f.call(a, b, d)
	}
}
