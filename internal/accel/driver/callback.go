package driver

import (
	"sync"

	"github.com/ebitengine/purego"
)

// Callbacks are the addresses that a driver may call, one per signature: a
// process can only ever have a limited number of them. Which Go function a call
// is for is told by its user_data, a token.
//
// A driver calls from threads of its own, possibly holding its locks: what is
// registered must neither block nor call the driver.
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

// NewCallbacks makes the addresses. Make one per process.
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

// Event has the signature void (*)(handle, int32, token); it fires once.
func (c *Callbacks) Event(call func(status int32)) (addr, token uintptr) {
	return c.event, c.add(true, func(_, status, _ uintptr) { call(int32(status)) })
}

// Build has the signature void (*)(handle, token); it fires once.
func (c *Callbacks) Build(call func()) (addr, token uintptr) {
	return c.build, c.add(true, func(_, _, _ uintptr) { call() })
}

// Context has the signature void (*)(text, private, size, token); it fires
// until Drop. What it is given is only valid during the call.
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

// Drop forgets a token; calls with it do nothing from now on.
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
