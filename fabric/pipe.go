package fabric

import (
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

// The flow-control window of one direction of a call in this process.
const (
	windowMessages = 64
	windowBytes    = 256 << 10
)

// A pipe is the queue of messages in one direction. One goroutine pushes, one pops.
type pipe struct {
	readable, writable chan struct{}

	mu     sync.Mutex
	queue  []queued
	first  int // the index of the first message in queue
	bytes  int
	closed bool
}

func (p *pipe) init() {
	p.readable, p.writable = make(chan struct{}, 1), make(chan struct{}, 1)
}

// queued is a message with its size, which is costly to compute.
type queued struct {
	message *call.Message
	size    int
}

// push returns false if the window is full. One message always fits.
func (p *pipe) push(q queued) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	waiting := len(p.queue) - p.first
	if waiting > 0 && (waiting >= windowMessages || p.bytes+q.size > windowBytes) {
		return false
	}
	p.queue = append(p.queue, q)
	p.bytes += q.size
	signal(p.readable)
	return true
}

// pop returns the next message, or nil and whether the pipe is closed.
func (p *pipe) pop() (*call.Message, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first == len(p.queue) {
		return nil, p.closed
	}
	q := p.queue[p.first]
	p.queue[p.first] = queued{}
	p.bytes -= q.size
	if p.first++; p.first == len(p.queue) {
		p.queue, p.first = p.queue[:0], 0
	}
	signal(p.writable)
	return q.message, false
}

func (p *pipe) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	signal(p.readable)
}

// drop frees the queued messages.
func (p *pipe) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range p.queue[p.first:] {
		q.message.Free()
	}
	p.queue, p.first, p.closed = nil, 0, true
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func queuedOf(m *call.Message) queued {
	m = detach(m)
	return queued{m, sizeOf(m)}
}

func sizeOf(m *call.Message) int {
	if m.Data == nil && m.Value != nil {
		if v := protoOf(m.Value); v != nil {
			return proto.Size(v)
		}
	}
	return len(m.Data)
}
