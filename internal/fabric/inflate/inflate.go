// Package inflate decompresses the messages that grpc-go receives within a budget of memory: 64 KiB
// may decompress to 64 MiB.
package inflate

import (
	"compress/gzip"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"unsafe"
)

// firstSize is the capacity with which a message is decompressed at first, in bytes.
const firstSize = 16 << 10

// A Budget bounds memory, in bytes. Its methods may be called concurrently.
type Budget interface {
	// Reserve returns an error if the budget has less left.
	Reserve(n int64) error
	Release(n int64)
}

// A Decompressor is a grpc.Decompressor for gzip. Its messages are reserved in a budget while they
// grow, and until Take: grpc-go decompresses a message without telling of which call.
type Decompressor struct {
	budget Budget
	most   int

	waiting atomic.Int64 // the length of sizes
	mu      sync.Mutex
	sizes   map[*byte]int64 // what is reserved for a message, by its first byte
}

// New returns a Decompressor for messages of at most that many bytes.
func New(b Budget, most int) *Decompressor {
	return &Decompressor{budget: b, most: most, sizes: map[*byte]int64{}}
}

// Type implements grpc.Decompressor.
func (*Decompressor) Type() string { return "gzip" }

// Do implements grpc.Decompressor. Of a message that is too long it returns a byte more than it may
// have, which grpc-go refuses before it calls the codec.
func (d *Decompressor) Do(r io.Reader) ([]byte, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	m := message{budget: d.budget, most: d.most}
	if err := m.readFrom(z); err != nil || len(m.data) > d.most {
		d.budget.Release(int64(cap(m.data)))
		return m.data, err
	}
	d.waiting.Add(1)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sizes[unsafe.SliceData(m.data)] = int64(cap(m.data))
	return m.data, nil
}

// Take ends the reservation of a message, and reports whether it was compressed. The codec calls it
// before it decodes the message.
func (d *Decompressor) Take(data []byte) bool {
	if d.waiting.Load() == 0 || cap(data) == 0 {
		return false
	}
	first := unsafe.SliceData(data)
	d.mu.Lock()
	size, ok := d.sizes[first]
	delete(d.sizes, first)
	d.mu.Unlock()
	if ok {
		d.waiting.Add(-1)
		d.budget.Release(size)
	}
	return ok
}

// A message grows while it is decompressed. Its capacity is reserved.
type message struct {
	budget Budget
	most   int
	data   []byte
}

func (m *message) readFrom(r io.Reader) error {
	for len(m.data) <= m.most {
		if len(m.data) == cap(m.data) {
			if err := m.grow(); err != nil {
				return err
			}
		}
		n, err := r.Read(m.data[len(m.data):cap(m.data)])
		m.data = m.data[:len(m.data)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// grow doubles the capacity, up to a byte more than a message may have.
func (m *message) grow() error {
	size := min(max(firstSize, 2*cap(m.data)), m.most+1)
	if err := m.budget.Reserve(int64(size)); err != nil {
		return err
	}
	old := m.data
	m.data = append(make([]byte, 0, size), old...)
	m.budget.Release(int64(cap(old)))
	return nil
}
