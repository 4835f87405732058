package compute

import (
	"encoding/binary"

	"github.com/outboard-run/outboard"
)

// The parameters of facts, from CL/cl.h.
const (
	deviceMaxWorkGroup = 0x1004
	deviceMaxBuffer    = 0x1010
	deviceLocalMemory  = 0x1023
	programKernelNames = 0x1168
	programBuildLog    = 0x1183
	programVariables   = 0x1185
	kernelNumArgs      = 0x1191
	kernelArgSpace     = 0x1196
)

// fact is an answer that the worker sends in advance, in the format of record 0004.
type fact struct {
	op     uint16
	param  uint32
	index  uint16
	object uint64
	value  []byte
}

func (f *fact) uint64Value() uint64 {
	var b [8]byte
	copy(b[:], f.value)
	return binary.LittleEndian.Uint64(b[:])
}

// text returns the value as a C string.
func (f *fact) text() string {
	for i, c := range f.value {
		if c == 0 {
			return string(f.value[:i])
		}
	}
	return string(f.value)
}

const factHead = 32

// eachFact calls f for each fact.
func eachFact(b []byte, f func(fact)) error {
	for len(b) > 0 {
		if len(b) < factHead {
			return outboard.Errorf(outboard.Protocol, "session", "facts are cut short")
		}
		size := uint64(binary.LittleEndian.Uint32(b[28:]))
		padded := (size + 7) &^ 7
		if padded > uint64(len(b)-factHead) {
			return outboard.Errorf(outboard.Protocol, "session", "facts are cut short")
		}
		if binary.LittleEndian.Uint32(b[24:]) == 0 {
			f(fact{
				op: binary.LittleEndian.Uint16(b), index: binary.LittleEndian.Uint16(b[2:]), param: binary.LittleEndian.Uint32(b[4:]),
				object: binary.LittleEndian.Uint64(b[8:]), value: b[factHead : factHead+size],
			})
		}
		b = b[factHead+padded:]
	}
	return nil
}
