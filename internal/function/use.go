package function

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
)

// What functions may hand to a bucket or a device.
const (
	maxKey = 64 << 10
	maxTxn = 16 << 20
	// maxList is how long a list of a device's commands may be. Data need not be in it.
	maxList = 16 << 20
)

// call calls another function. Its response is the result.
func (s *slot) call(number int32, from, size uint32) error {
	callee, h, err := as[Callee](s, number, "function")
	if err != nil {
		return err
	}
	q := Request{Arena: s.arena, ReadOnly: s.readOnly, Depth: s.depth + 1}
	if p, ok := s.place(from, size); ok && !s.readOnly { // what it wrote itself is not in the arena
		q.Place = &p
	} else if q.Body, ok = s.instance.Memory().Read(from, size); !ok {
		return errOutside
	}
	begin := time.Now()
	p, err := callee.Call(s.context(), q)
	record := s.imports.spent(h.record, begin)
	s.passed(record, int(size), q.Place != nil)
	if err != nil {
		return err
	}
	s.result = p.Body
	if p.Place != nil {
		s.result, err = s.arenaPart(*p.Place)
	}
	s.passed(record, len(s.result), p.Place != nil)
	return err
}

func (s *slot) arenaPart(p Place) ([]byte, error) {
	if s.arena == nil {
		return nil, errors.New("the response lies in an arena, and the call has none")
	}
	return s.arena.At(p)
}

// passed counts bytes that went to or came from a resource.
func (s *slot) passed(r *Import, size int, pointer bool) {
	if pointer {
		r.Pointer += int64(size)
		s.pointer += int64(size)
		return
	}
	r.Copied += int64(size)
	s.copied += int64(size)
	s.meter.move(size)
}

// secret makes a secret the result.
func (s *slot) secret(number int32) error {
	secret, h, err := as[Secret](s, number, "secret")
	if err != nil {
		return err
	}
	begin := time.Now()
	s.result = secret.Bytes()
	s.passed(s.imports.spent(h.record, begin), len(s.result), false)
	return nil
}

// get makes the value of a key the result.
func (s *slot) get(number int32, key []byte) (revision uint64, err error) {
	bucket, h, err := as[Bucket](s, number, "bucket")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	s.result, revision, err = bucket.Get(s.context(), string(key))
	s.passed(s.imports.spent(h.record, begin), len(key)+len(s.result), false)
	return revision, err
}

// transact does a transaction, and returns the number of the condition that failed, or -1.
// The bytes are copied because other functions may see where they lie.
func (s *slot) transact(number int32, encoded []byte) (failed int, err error) {
	bucket, h, err := as[Bucket](s, number, "bucket")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	failed, err = bucket.Txn(s.context(), bytes.Clone(encoded))
	s.passed(s.imports.spent(h.record, begin), len(encoded), false)
	return failed, err
}

// arenaMap maps a named arena, unless it is, and returns its address. The result is its size.
func (s *slot) arenaMap(number int32) (address uint32, err error) {
	a, h, err := as[*SharedArena](s, number, "arena")
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	if h.address == 0 {
		if h.address, err = s.mapNamed(a); err != nil {
			return 0, err
		}
	}
	s.imports.spent(h.record, begin)
	s.result = binary.LittleEndian.AppendUint64(nil, uint64(a.Arena.Size()))
	return h.address, nil
}

// deviceInfo makes what is known of a device the result.
func (s *slot) deviceInfo(number int32) error {
	device, h, err := as[Device](s, number, "device")
	if err != nil {
		return err
	}
	begin := time.Now()
	s.result = device.Info()
	s.passed(s.imports.spent(h.record, begin), len(s.result), false)
	return nil
}

// deviceDo has a device do a list of commands. What they read is the result. Bytes that
// the list only names are read and written where they are: in the instance's memory, the
// arena among it.
func (s *slot) deviceDo(number int32, list []byte) error {
	device, h, err := as[Device](s, number, "device")
	if err != nil {
		return err
	}
	begin := time.Now()
	result, err := device.Do(s.context(), list, s.instance.Memory().Read)
	s.result = result.Read
	_, _ = s.stdout.Write(result.Printed)
	s.passed(s.imports.spent(h.record, begin), int(result.Moved), false)
	return err
}

// meta makes what is known about the request the result.
func (s *slot) meta(name string) bool {
	if s.about == nil {
		return false
	}
	value, ok := s.about(name)
	s.result = []byte(value)
	s.meter.move(len(value))
	return ok
}

var errOutside = errors.New("the bytes lie outside of the function's memory")

// argument is bytes that a host call names, address and size, at most so many.
func (s *slot) argument(what string, stack []uint64, most int) ([]byte, error) {
	size := uint32(stack[1])
	if int64(size) > int64(most) {
		return nil, fmt.Errorf("%s of %v: want at most %v", what, outboard.Bytes(size), outboard.Bytes(most))
	}
	b, ok := s.instance.Memory().Read(uint32(stack[0]), size)
	if !ok {
		return nil, errOutside
	}
	return b, nil
}
