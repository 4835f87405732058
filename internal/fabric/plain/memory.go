package plain

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/inflate"
)

// freeMessage is the size in bytes up to which a message is not counted, since most are smaller.
const freeMessage = 16 << 10

// memory counts the bytes of the messages that the calls of a server hold.
type memory struct {
	limit int64
	held  atomic.Int64
}

// Reserve implements inflate.Budget.
func (m *memory) Reserve(n int64) error {
	for {
		held := m.held.Load()
		if held+n > m.limit {
			return status.Errorf(codes.ResourceExhausted, "messages of %d bytes are held, of %d at most: send it again later", held, m.limit)
		}
		if m.held.CompareAndSwap(held, held+n) {
			return nil
		}
	}
}

// Release implements inflate.Budget.
func (m *memory) Release(n int64) { m.held.Add(-n) }

// callMemory is what one call holds of a memory.
type callMemory struct {
	of *memory

	// cancel ends the call when a message is refused, if it is not nil.
	cancel func()

	mu      sync.Mutex
	held    int64
	refused error
	ended   bool
}

func (c *callMemory) reserve(n int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	err := c.of.Reserve(n)
	if err == nil {
		c.held += n
		return nil
	}
	c.refused = err
	if c.cancel != nil {
		c.cancel()
	}
	return err
}

// refusal returns the error of the message that was refused, if one was.
func (c *callMemory) refusal() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused
}

// release is called when a message is freed, which may be after end.
func (c *callMemory) release(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.held -= n
		c.of.Release(n)
	}
}

// end releases what the call still holds: a message that nobody freed would count for ever.
func (c *callMemory) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.of.Release(c.held)
}

// received is a message that is received for a call. If refused is set, it was dropped.
type received struct {
	call.Message
	memory  *callMemory
	refused error
}

// serverCodec is rawCodec for messages that are counted.
type serverCodec struct {
	rawCodec
	decompressor *inflate.Decompressor
}

// Unmarshal implements encoding.CodecV2. It returns no error for a message that is refused: grpc-go
// would end the call with codes.Internal.
func (c serverCodec) Unmarshal(data mem.BufferSlice, v any) error {
	for _, buffer := range data {
		c.decompressor.Take(buffer.ReadOnlyData())
	}
	r, ok := v.(*received)
	if !ok {
		return c.rawCodec.Unmarshal(data, v)
	}
	size := int64(data.Len())
	if size <= freeMessage {
		return c.rawCodec.Unmarshal(data, &r.Message)
	}
	if r.refused = r.memory.reserve(size); r.refused != nil {
		return nil //nolint:nilerr // see above
	}
	if err := c.rawCodec.Unmarshal(data, &r.Message); err != nil {
		return err
	}
	free := r.Release
	r.Release = func() {
		free()
		r.memory.release(size)
	}
	return nil
}
