package shared

import (
	"slices"
	"unsafe"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
)

// An assembly is a message of which chunks have arrived: in place, while they are adjacent in the
// peer's heap, and otherwise copied.
type assembly struct {
	stream *stream
	total  uint64

	run    []byte          // the chunks, if they are adjacent
	chunks []*call.Message // of run

	buf  *buffers.Buffer // nil: the chunks are adjacent
	have int             // bytes in buf
}

// bytes returns what has arrived.
func (a *assembly) bytes() []byte {
	if a.buf != nil {
		return a.buf.Data[:a.have]
	}
	return a.run
}

// add adds a chunk, which it takes over.
func (a *assembly) add(m *call.Message) {
	if a.buf == nil && a.extendRun(m) {
		return
	}
	if len(a.run) > 0 {
		a.copy(a.run)
		a.freeRun()
	}
	a.copy(m.Data)
	m.Free()
}

// extendRun adds a chunk that lies in the peer's heap behind the others.
func (a *assembly) extendRun(m *call.Message) bool {
	if m.Release == nil || len(m.Data) == 0 {
		return false // it is a copy
	}
	g := &a.stream.e.region.geometry
	switch {
	case a.total > uint64(g.maxRun()):
		return false // it would hold too much of the heap
	case a.run == nil && len(m.Data) == g.maxBlock():
		a.run = m.Data
	case a.run == nil:
		return false
	case unsafe.Pointer(unsafe.SliceData(m.Data)) == unsafe.Add(unsafe.Pointer(unsafe.SliceData(a.run)), len(a.run)):
		a.run = unsafe.Slice(unsafe.SliceData(a.run), len(a.run)+len(m.Data)) // both are in the region
	default:
		return false
	}
	a.chunks = append(a.chunks, m)
	return true
}

func (a *assembly) freeRun() {
	for _, m := range a.chunks {
		m.Free()
	}
	a.run, a.chunks = nil, nil
}

// copy appends data to the first bytes of buf, or of a larger buffer that replaces it. The announced
// size is only a claim: memory grows with what has arrived.
func (a *assembly) copy(data []byte) {
	pool := &a.stream.e.conn.buffers
	end := a.have + len(data)
	if a.buf == nil || end > len(a.buf.Data) {
		bigger := pool.Get(max(buffers.NextSize(end, int(a.total)), end))
		if a.buf != nil {
			copy(bigger.Data, a.buf.Data[:a.have])
			pool.Put(a.buf)
		}
		a.buf = bigger
	}
	copy(a.buf.Data[a.have:], data)
	a.have = end
}

// message returns the complete message.
func (a *assembly) message() *call.Message {
	if a.buf != nil {
		return a.stream.e.conn.buffers.Message(a.buf, a.buf.Data[:a.have:a.have], false)
	}
	chunks := a.chunks
	return &call.Message{Data: slices.Clip(a.run), Release: func() {
		for _, m := range chunks {
			m.Free()
		}
	}}
}

// drop frees what has arrived.
func (a *assembly) drop() {
	a.freeRun()
	if a.buf != nil {
		a.stream.e.conn.buffers.Put(a.buf)
	}
}
