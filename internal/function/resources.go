package function

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
)

// The sizes that a function may pass to a bucket or a device.
const (
	maxKey = 64 << 10
	maxTxn = 16 << 20
	// maxList is how long a list of a device's commands may be. Data need not be in it.
	maxList = 16 << 20
)

// callResource calls an imported function. Its response becomes the result.
func (c *invocation) callResource(number int32, from, size uint32) error {
	callee, h, err := resourceAs[Callee](c, number, "function")
	if err != nil {
		return err
	}
	q := Request{Arena: c.arena, ReadOnly: c.readOnly, Depth: c.depth + 1}
	if p, ok := c.arenaPlace(from, size); ok && !c.readOnly { // read-only writes are not in the arena
		q.Place = &p
	} else if q.Body, ok = c.slot.instance.Memory().Read(from, size); !ok {
		return errOutside
	}
	begin := time.Now()
	p, err := callee.Call(c.context(), q)
	record := c.imports.recordUse(h.record, begin)
	c.countTransfer(record, int(size), q.Place != nil)
	if err != nil {
		return err
	}
	c.result = p.Body
	if p.Place != nil {
		c.result, err = c.arenaPart(*p.Place)
	}
	c.countTransfer(record, len(c.result), p.Place != nil)
	return err
}

func (c *invocation) arenaPart(p Extent) ([]byte, error) {
	if c.arena == nil {
		return nil, errors.New("the response lies in an arena, and the call has none")
	}
	return c.arena.Slice(p)
}

// countTransfer counts bytes that were passed to or from a resource, and charges for copies.
func (c *invocation) countTransfer(r *Import, size int, pointer bool) {
	if pointer {
		r.Pointer += int64(size)
		c.pointer += int64(size)
		return
	}
	r.Copied += int64(size)
	c.copied += int64(size)
	c.slot.meter.chargeBytes(size)
}

// loadSecret makes a secret the result.
func (c *invocation) loadSecret(number int32) error {
	secret, h, err := resourceAs[Secret](c, number, "secret")
	if err != nil {
		return err
	}
	begin := time.Now()
	c.result = secret.Bytes()
	c.countTransfer(c.imports.recordUse(h.record, begin), len(c.result), false)
	return nil
}

// bucketGet makes the value of a key the result.
func (c *invocation) bucketGet(number int32, key []byte) (revision uint64, err error) {
	bucket, h, err := resourceAs[Bucket](c, number, "bucket")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	c.result, revision, err = bucket.Get(c.context(), string(key))
	c.countTransfer(c.imports.recordUse(h.record, begin), len(key)+len(c.result), false)
	return revision, err
}

// bucketTransact commits a transaction, and returns the index of the condition that failed, or -1.
// The bytes are copied because they may lie in memory that is shared.
func (c *invocation) bucketTransact(number int32, encoded []byte) (failed int, err error) {
	bucket, h, err := resourceAs[Bucket](c, number, "bucket")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	failed, err = bucket.Txn(c.context(), bytes.Clone(encoded))
	c.countTransfer(c.imports.recordUse(h.record, begin), len(encoded), false)
	return failed, err
}

// arenaMap maps a named arena, unless it is mapped, and returns its address. The result is its
// size.
func (c *invocation) arenaMap(number int32) (address uint32, err error) {
	a, h, err := resourceAs[*SharedArena](c, number, "arena")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if h.address == 0 {
		c.slot.meter.chargeBytes(mapCost)
		if h.address, err = c.slot.view.mapNamed(a); err != nil {
			return 0, err
		}
	}
	c.imports.recordUse(h.record, begin)
	c.result = binary.LittleEndian.AppendUint64(nil, uint64(a.Arena.Size()))
	return h.address, nil
}

// deviceInfo returns the description of a device as the result.
func (c *invocation) deviceInfo(number int32) error {
	device, h, err := resourceAs[Device](c, number, "device")
	if err != nil {
		return err
	}
	begin := time.Now()
	c.result = device.Info()
	c.countTransfer(c.imports.recordUse(h.record, begin), len(c.result), false)
	return nil
}

// deviceDo executes a list of commands on a device. The data that they read becomes the result.
// Bytes that the list refers to are read and written in place, in the instance's memory.
func (c *invocation) deviceDo(number int32, list []byte) error {
	device, h, err := resourceAs[Device](c, number, "device")
	if err != nil {
		return err
	}
	begin := time.Now()
	result, err := device.Do(c.context(), list, c.slot.instance.Memory().Read)
	c.result = result.Read
	_, _ = c.slot.stdout.Write(result.Printed)
	c.countTransfer(c.imports.recordUse(h.record, begin), int(result.Moved), false)
	return err
}

// loadMeta makes a metadata value of the request the result, and reports whether there is one.
func (c *invocation) loadMeta(name string) bool {
	if c.about == nil {
		return false
	}
	value, ok := c.about(name)
	c.result = []byte(value)
	c.slot.meter.chargeBytes(len(value))
	return ok
}

var errOutside = errors.New("the bytes lie outside of the function's memory")

// readArgument returns the bytes at an address with a size, the first two values of stack, if they
// are at most most bytes. name stands for them in the error.
func (c *invocation) readArgument(name string, stack []uint64, most int) ([]byte, error) {
	size := uint32(stack[1])
	if int64(size) > int64(most) {
		return nil, fmt.Errorf("%s of %v: want at most %v", name, outboard.Bytes(size), outboard.Bytes(most))
	}
	b, ok := c.slot.instance.Memory().Read(uint32(stack[0]), size)
	if !ok {
		return nil, errOutside
	}
	return b, nil
}
