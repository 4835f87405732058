package compute

import (
	"errors"
	"fmt"

	"github.com/outboard-run/outboard"
)

func (r *run) buffer(i int, c *Command) error {
	h := r.holder
	switch most := h.device.facts; {
	case h.buffers[c.number] != nil:
		return fmt.Errorf("there is a buffer %d already: free it, or choose another number", c.number)
	case len(h.buffers) == maxBuffers:
		return fmt.Errorf("there are %d buffers: free one", maxBuffers)
	case c.size == 0:
		return errors.New("a buffer has 1 byte at least")
	case most.Memory > 0 && c.size > uint64(most.Memory):
		return fmt.Errorf("%v are more than the device's memory for this lease, %v", outboard.Bytes(c.size), most.Memory)
	case most.Buffer > 0 && c.size > uint64(most.Buffer):
		return fmt.Errorf("%v are more than the largest buffer of the device, %v", outboard.Bytes(c.size), most.Buffer)
	}
	b := &buffer{id: h.device.newID(), size: c.size}
	if err := h.send(r, i, opClCreateBuffer, &argsClCreateBuffer{Context: h.device.context, Flags: memReadWrite, Size: c.size, Result: b.id}); err != nil {
		return err
	}
	h.buffers[c.number] = b
	r.createdBuffers = append(r.createdBuffers, c.number)
	return nil
}

// bufferRange returns the buffer with the given number if it contains size bytes at offset.
func (h *Holder) bufferRange(number uint32, offset, size uint64) (*buffer, error) {
	b := h.buffers[number]
	switch {
	case b == nil:
		return nil, fmt.Errorf("there is no buffer %d", number)
	case size > b.size || offset > b.size-size:
		return nil, fmt.Errorf("%d bytes at %d lie outside of buffer %d, which has %d", size, offset, number, b.size)
	}
	return b, nil
}

const (
	memReadWrite = 1 << 0 // CL_MEM_READ_WRITE
	// piece is the most that one message writes: a cancelled call must wait until its current
	// message is in the ring.
	piece = 1 << 20
)

func (r *run) write(i int, c *Command) error {
	h := r.holder
	b, err := h.bufferRange(c.number, c.offset, c.size)
	if err != nil || c.size == 0 {
		return err
	}
	if c.size == b.size && !b.initialized {
		b.initialized = true
		r.overwritten = append(r.overwritten, b)
	} else if err := r.zero(i, b); err != nil {
		return err
	}
	for offset, rest := c.offset, c.bytes; len(rest) > 0; {
		part := rest[:min(len(rest), piece)]
		args := argsClEnqueueWriteBuffer{CommandQueue: h.queue, Buffer: b.id, Offset: offset, Size: uint64(len(part))}
		if err := h.send(r, i, opClEnqueueWriteBuffer, &args, part); err != nil {
			return err
		}
		r.bytesMoved += int64(len(part))
		offset, rest = offset+uint64(len(part)), rest[len(part):]
	}
	return nil
}

// zero fills an uninitialized buffer with zeros, so that a holder can't read the memory's previous
// contents.
func (r *run) zero(i int, b *buffer) error {
	if b.initialized {
		return nil
	}
	pattern := make([]byte, 16)
	if b.size%16 != 0 {
		pattern = pattern[:1]
	}
	b.initialized = true
	r.overwritten = append(r.overwritten, b)
	return r.holder.send(r, i, opClEnqueueFillBuffer, &argsClEnqueueFillBuffer{CommandQueue: r.holder.queue, Buffer: b.id, Pattern: pattern, Size: b.size})
}

func (r *run) readBack(i int, c *Command) error {
	h := r.holder
	b, err := h.bufferRange(c.number, c.offset, c.size)
	if err == nil {
		err = r.zero(i, b)
	}
	if err != nil || c.size == 0 {
		return err
	}
	to := c.bytes
	if c.op == opRead {
		at := len(r.read)
		r.read = r.read[:at+int(c.size)]
		to = r.read[at:]
	}
	w, err := h.request(r, opClEnqueueReadBuffer, &argsClEnqueueReadBuffer{
		CommandQueue: h.queue, Buffer: b.id, BlockingRead: 1, Offset: c.offset, Size: c.size,
	}, owner{r, i}, to)
	if err != nil {
		return err
	}
	r.bytesMoved += int64(c.size)
	r.waits = append(r.waits, w)
	return nil
}

func (r *run) free(c *Command) error {
	b := r.holder.buffers[c.number]
	if b == nil {
		return fmt.Errorf("there is no buffer %d", c.number)
	}
	delete(r.holder.buffers, c.number)
	return r.release(kindMem, b.id)
}
