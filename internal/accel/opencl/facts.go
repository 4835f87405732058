package opencl

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/wire"
)

// AnsweredInAdvance reports whether a worker sends the answer to a query before a client asks: op
// is the function, param the queried parameter.
func AnsweredInAdvance(op uint16, param uint32) bool { return slices.Contains(facts[op], param) }

// firstAnswer is the capacity for an answer before its size is known: most answers fit, and one
// call suffices.
const firstAnswer = 1 << 10

// query calls fn(args..., size, value, size_ret). The value lies in frame.
func query(drv *driver.Table, frame *driver.Frame, fn int, args ...uintptr) (int32, []byte) {
	if !drv.Has(fn) {
		return clInvalidOperation, nil
	}
	capacity := firstAnswer
	for {
		b, err := frame.Bytes(capacity + 8)
		if err != nil {
			return clOutOfHostMemory, nil
		}
		value, sizeRet := b[8:], b[:8]
		status := int32(drv.Call(fn, append(slices.Clip(args), uintptr(capacity), driver.Address(value), driver.Address(sizeRet))...))
		if status == clSuccess {
			return status, value[:min(int(firstWord(sizeRet)), capacity)]
		}
		// Too small, or a query that is invalid at any capacity?
		clear(sizeRet)
		again := int32(drv.Call(fn, append(slices.Clip(args), 0, 0, driver.Address(sizeRet))...))
		size := firstWord(sizeRet)
		if again != clSuccess || size <= uint64(capacity) || size > maxAnswer {
			return status, nil
		}
		capacity = int(size)
	}
}

// maxAnswer bounds the size that a driver may report for an answer.
const maxAnswer = 48 << 20

// factWriter collects facts. It has its own memory for the driver, so that it may be used beside
// the dispatcher.
type factWriter struct {
	drv      *driver.Table
	device   *device
	includes *includes // nil where no build is described
	frame    *driver.Frame
	e        wire.Encoder
}

// factKey identifies a fact, together with its query's parameter.
type factKey struct {
	op, index      uint16
	object, device uint64
}

// writeFact executes one query and appends the answer, as record 0004 specifies.
func (n *factWriter) writeFact(t factKey, fn int, param uint32, args ...uintptr) []byte {
	n.frame.Reset()
	status, value := query(n.drv, n.frame, fn, append(args, uintptr(param))...)
	switch {
	case status != clSuccess:
		value = nil
	case t.op == opClGetDeviceInfo:
		value = n.device.adjustInfo(param, value)
	case t.op == opClGetProgramBuildInfo && param == clProgramBuildLog:
		value = n.includes.hide(value)
	}
	n.appendFact(t, param, status, value)
	return value
}

func (n *factWriter) appendFact(t factKey, param uint32, status int32, value []byte) {
	n.e.U64(uint64(t.op) | uint64(t.index)<<16 | uint64(param)<<32)
	n.e.U64(t.object)
	n.e.U64(t.device)
	n.e.U64(uint64(uint32(status)) | uint64(len(value))<<32)
	n.e.Raw(value)
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// facts returns everything that a client can query about a program after it was built.
func (ps *programs) facts(id uint64, p *programState, handle uintptr) []byte {
	frame := ps.frames.get()
	defer ps.frames.put(frame)
	n := factWriter{drv: ps.drv, device: ps.device, includes: ps.includes, frame: frame}
	var names string
	for _, param := range facts[opClGetProgramInfo] {
		value := n.writeFact(factKey{op: opClGetProgramInfo, object: id}, fnClGetProgramInfo, param, handle)
		if param == clProgramKernelNames {
			names = cString(value)
		}
	}
	for _, d := range p.devices {
		for _, param := range facts[opClGetProgramBuildInfo] {
			n.writeFact(factKey{op: opClGetProgramBuildInfo, object: id, device: d.id}, fnClGetProgramBuildInfo, param, handle, d.handle)
		}
	}
	if names != "" {
		for i, name := range strings.Split(names, ";") {
			ps.kernelFacts(&n, uint64(i), p, handle, name)
		}
	}
	return n.e.Body()
}

func (ps *programs) kernelFacts(n *factWriter, number uint64, p *programState, handle uintptr, name string) {
	n.frame.Reset()
	b, err := n.frame.Bytes(len(name) + 1)
	if err != nil {
		return // without facts the client asks when it needs them
	}
	copy(b, name)
	kernel := ps.drv.Call(fnClCreateKernel, handle, driver.Address(b), 0)
	if kernel == 0 {
		return
	}
	defer ps.drv.Call(fnClReleaseKernel, kernel)
	count := uint32(0)
	for _, param := range facts[opClGetKernelInfo] {
		value := n.writeFact(factKey{op: opClGetKernelInfo, object: number}, fnClGetKernelInfo, param, kernel)
		if param == clKernelNumArgs && len(value) >= 4 {
			count = binary.LittleEndian.Uint32(value)
		}
	}
	for arg := range min(count, maxKernelArgs) {
		for _, param := range facts[opClGetKernelArgInfo] {
			n.writeFact(factKey{op: opClGetKernelArgInfo, index: uint16(arg), object: number}, fnClGetKernelArgInfo, param, kernel, uintptr(arg))
		}
	}
	for _, d := range p.devices {
		for _, param := range facts[opClGetKernelWorkGroupInfo] {
			n.writeFact(factKey{op: opClGetKernelWorkGroupInfo, object: number, device: d.id}, fnClGetKernelWorkGroupInfo, param, kernel, d.handle)
		}
	}
}

// maxKernelArgs is more than any real kernel has.
const maxKernelArgs = 4096
