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
	sizes   map[*byte]sizes // of a message, by its first byte
}

// sizes are the sizes of a message in bytes: while it was compressed, and what is reserved for it.
type sizes struct {
	compressed, reserved int64
}

// New returns a Decompressor for messages of at most that many bytes.
func New(b Budget, most int) *Decompressor {
	return &Decompressor{budget: b, most: most, sizes: map[*byte]sizes{}}
}

// Type implements grpc.Decompressor.
func (*Decompressor) Type() string { return "gzip" }

// Do implements grpc.Decompressor. Of a message that is too long it returns a byte more than it may
// have, which grpc-go refuses before it calls the codec.
func (d *Decompressor) Do(r io.Reader) ([]byte, error) {
	compressed := remaining(r)
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
	d.sizes[unsafe.SliceData(m.data)] = sizes{compressed, int64(cap(m.data))}
	return m.data, nil
}

// remaining returns how many bytes a reader has, if it is one of grpc-go's.
func remaining(r io.Reader) int64 {
	if sized, ok := r.(interface{ Remaining() int }); ok {
		return int64(sized.Remaining())
	}
	return 0
}

// Take ends the reservation of a message. It reports whether the message was compressed, and how many
// bytes it had then; 0: unknown. The codec calls it before it decodes the message.
func (d *Decompressor) Take(data []byte) (compressed int64, ok bool) {
	if d.waiting.Load() == 0 || cap(data) == 0 {
		return 0, false
	}
	first := unsafe.SliceData(data)
	d.mu.Lock()
	size, ok := d.sizes[first]
	delete(d.sizes, first)
	d.mu.Unlock()
	if ok {
		d.waiting.Add(-1)
		d.budget.Release(size.reserved)
	}
	return size.compressed, ok
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
