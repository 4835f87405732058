package function

// maxAllocated bounds the extents of an arena that a call may allocate.
const maxAllocated = 4096

// appendResponse appends to the response, and replaces a response that is a part of the arena.
func (c *invocation) appendResponse(b []byte) bool {
	if len(b) > int(c.slot.limits.Response)-len(c.response)-c.flushed {
		c.tooLarge = true
		return false
	}
	c.responseAt = nil
	c.copied += int64(len(b))
	c.slot.meter.chargeBytes(len(b))
	c.response = append(c.response, b...)
	return true
}

// setResponsePlace makes a part of the arena the response, in place of the bytes written before.
func (c *invocation) setResponsePlace(p Extent) bool {
	if !c.sees(p) || c.flushed > 0 {
		return false
	}
	c.response, c.responseAt = nil, &p
	return true
}

// allocateInArena allocates memory of the arena. A call that fails frees it.
func (c *invocation) allocateInArena(size int) (int, bool) {
	if !c.sees(Extent{}) || c.readOnly || len(c.allocated) == maxAllocated {
		return 0, false
	}
	p, ok := c.arena.Alloc(size)
	if ok && !c.sees(p) {
		c.arena.Free(p)
		ok = false
	}
	if !ok {
		return 0, false
	}
	c.slot.meter.chargeBytes(size) // it was made zero
	p.Size = aligned(p.Size)
	if n := len(c.allocated); n > 0 && c.allocated[n-1].Offset+c.allocated[n-1].Size == p.Offset {
		c.allocated[n-1].Size += p.Size
	} else {
		c.allocated = append(c.allocated, p)
	}
	return p.Offset, true
}

// freeAllocated frees the allocations of a failed call.
func (c *invocation) freeAllocated() {
	for _, p := range c.allocated {
		c.arena.Free(p)
	}
	c.allocated = nil
}

// detachResponse moves the response out of the slot.
func (c *invocation) detachResponse() Response {
	p := Response{Body: c.response, Streamed: c.flushed > 0, Place: c.responseAt, Stdout: c.slot.stdout.drain(), Stderr: c.slot.stderr.drain()}
	if p.Streamed {
		p.Body = nil
	}
	if p.Place != nil {
		c.pointer += int64(p.Place.Size)
	}
	return p
}

// errorText returns the response of a function whose status is not 0.
func (c *invocation) errorText() string {
	if c.responseAt == nil {
		return string(c.response)
	}
	b, _ := c.arena.Slice(*c.responseAt) // it was checked
	return string(b[:min(len(b), int(c.slot.limits.Response))])
}
