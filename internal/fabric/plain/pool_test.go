package plain

import (
	"testing"
	"unsafe"

	"google.golang.org/grpc/mem"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
)

// TestBufferPool gets buffers of all sizes again after they were put back, without a cleared byte and
// without much more memory than they need.
func TestBufferPool(t *testing.T) {
	var p bufferPool
	defer p.Close()
	for _, length := range []int{0, 1, 1 << 10, 1<<10 + 1, 16 << 10, 32 << 10, 32<<10 + 1, buffers.MinPooled - 1, buffers.MinPooled, 256 << 10, 300_000, 1<<20 + 1, 16 << 20} {
		b := p.Get(length)
		if len(*b) != length || cap(*b) > max(2*length, buffers.MinPooled) {
			t.Fatalf("%d bytes in a buffer of %d and %d", length, len(*b), cap(*b))
		}
		if length == 0 {
			p.Put(b)
			continue
		}
		(*b)[length-1] = 7
		first := unsafe.SliceData(*b)
		p.Put(b)
		if smallClass(length) <= maxSmallClass {
			continue // a sync.Pool may drop what it gets
		}
		again := p.Get(length)
		if unsafe.SliceData(*again) != first || (*again)[length-1] != 7 {
			t.Errorf("%d bytes: another buffer, or a cleared one", length)
		}
		p.Put(again)
	}
}

// TestBufferPoolRefusesForeignBuffers puts buffers of sizes that the pool never returns.
func TestBufferPoolRefusesForeignBuffers(t *testing.T) {
	var p bufferPool
	defer p.Close()
	for _, size := range []int{0, 3, 1000, 65000, 100_000, 3 << 20} {
		b := make([]byte, size)
		p.Put(&b)
		if got := p.Get(size); len(*got) != size || size > 0 && unsafe.SliceData(*got) == unsafe.SliceData(b) && size < 3<<20 {
			t.Errorf("a buffer of %d bytes has %d", size, len(*got))
		}
	}
}

// TestCodecUsesPool reads a message that has arrived in several buffers into a buffer of the pool, which
// gets it back when the message is freed.
func TestCodecUsesPool(t *testing.T) {
	var p bufferPool
	defer p.Close()
	kept := p.Get(300_000)
	first := unsafe.SliceData(*kept)
	p.Put(kept)
	for range 2 {
		m := new(call.Message)
		if err := (rawCodec{&p}).Unmarshal(mem.BufferSlice{mem.SliceBuffer(make([]byte, 200_000)), mem.SliceBuffer(make([]byte, 100_000))}, m); err != nil {
			t.Fatal(err)
		}
		if len(m.Data) != 300_000 || unsafe.SliceData(m.Data) != first {
			t.Errorf("a message of %d bytes, in memory of its own", len(m.Data))
		}
		m.Free()
	}
}

// BenchmarkBufferPool reads a message of 256 KiB that has arrived in frames of 16 KiB, as a handler
// gets it, with this package's pool and with grpc-go's.
func BenchmarkBufferPool(b *testing.B) {
	own := new(bufferPool)
	defer own.Close()
	frame := make([]byte, 16<<10)
	for name, pool := range map[string]mem.BufferPool{"own": own, "grpc-go": mem.DefaultBufferPool()} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				var frames mem.BufferSlice
				for range 16 {
					frames = append(frames, mem.Copy(frame, pool))
				}
				message := frames.MaterializeToBuffer(pool)
				frames.Free()
				message.Free()
			}
		})
	}
}
