package opencl

import (
	"sync"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// frames is memory outside Go's heap for the arguments and answers of calls: one frame for the
// dispatcher, and a pool for the goroutines beside it.
type frames struct {
	current *driver.Frame
	framePool
}

// framePool lends frames to goroutines beside the dispatcher.
type framePool struct {
	mu   sync.Mutex
	free []*driver.Frame
}

func (p *framePool) get() *driver.Frame {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.free); n > 0 {
		f := p.free[n-1]
		p.free = p.free[:n-1]
		return f
	}
	f, err := driver.NewFrame()
	if err != nil {
		return &driver.Frame{} // each allocation from it tries the system again, and fails there
	}
	return f
}

func (p *framePool) put(f *driver.Frame) {
	f.Reset()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, f)
}
