package opencl

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/accel/driver"
	"github.com/outboard-run/outboard/internal/wire"
)

// firstAnswer is the room for an answer before its size is known: most fit, and
// one call is then enough.
const firstAnswer = 1 << 10

// ask calls a query: fn(args..., size, value, size_ret). The value lies in frame.
func ask(drv *driver.Table, frame *driver.Frame, fn int, args ...uintptr) (int32, []byte) {
	if !drv.Has(fn) {
		return clInvalidOperation, nil
	}
	room := firstAnswer
	for {
		b, err := frame.Bytes(room + 8)
		if err != nil {
			return clOutOfHostMemory, nil
		}
		value, sizeRet := b[8:], b[:8]
		status := int32(drv.Call(fn, append(slices.Clip(args), uintptr(room), driver.Address(value), driver.Address(sizeRet))...))
		if status == clSuccess {
			return status, value[:min(int(word(sizeRet)), room)]
		}
		// Too small, or a query that is invalid whatever the room?
		clear(sizeRet)
		again := int32(drv.Call(fn, append(slices.Clip(args), 0, 0, driver.Address(sizeRet))...))
		size := word(sizeRet)
		if again != clSuccess || size <= uint64(room) || size > maxAnswer {
			return status, nil
		}
		room = int(size)
	}
}

// maxAnswer bounds what a driver may claim to have to say.
const maxAnswer = 48 << 20

// A notebook collects facts. It has its own memory for the driver, so that it
// may be used beside the dispatcher.
type notebook struct {
	w     *Worker
	frame *driver.Frame
	e     wire.Encoder
}

// A topic says what a fact is about, besides its query's call and parameter.
type topic struct {
	op, index      uint16
	object, device uint64
}

// fact asks one query and writes the answer down, as record 0004 says.
func (n *notebook) fact(t topic, fn int, param uint32, args ...uintptr) []byte {
	n.frame.Reset()
	status, value := ask(n.w.drv, n.frame, fn, append(args, uintptr(param))...)
	switch {
	case status != clSuccess:
		value = nil
	case t.op == opClGetDeviceInfo:
		value = n.w.adjust(param, value)
	case t.op == opClGetProgramBuildInfo && param == clProgramBuildLog:
		value = n.w.hideIncludes(value)
	}
	n.e.U64(uint64(t.op) | uint64(t.index)<<16 | uint64(param)<<32)
	n.e.U64(t.object)
	n.e.U64(t.device)
	n.e.U64(uint64(uint32(status)) | uint64(len(value))<<32)
	n.e.Raw(value)
	return value
}

func (w *Worker) deviceFacts(n *notebook, id uint64, handle uintptr) {
	for _, param := range facts[opClGetDeviceInfo] {
		n.fact(topic{op: opClGetDeviceInfo, object: id}, fnClGetDeviceInfo, param, handle)
	}
}

func (w *Worker) sendSnapshot() error {
	n := notebook{w: w, frame: w.frame}
	for _, param := range facts[opClGetPlatformInfo] {
		n.fact(topic{op: opClGetPlatformInfo, object: platformID}, fnClGetPlatformInfo, param, w.platform)
	}
	w.deviceFacts(&n, deviceID, w.device)
	s := argsSnapshot{MemoryLimit: w.memory.limit, Facts: n.e.Body()}
	return w.notify(opSnapshot, s.encode(nil))
}

// programFacts are what a client can ask about a program after it was built.
func (w *Worker) programFacts(id uint64, p *programState, handle uintptr) []byte {
	frame := w.frames.get()
	defer w.frames.put(frame)
	n := notebook{w: w, frame: frame}
	var names string
	for _, param := range facts[opClGetProgramInfo] {
		value := n.fact(topic{op: opClGetProgramInfo, object: id}, fnClGetProgramInfo, param, handle)
		if param == clProgramKernelNames {
			names = cString(value)
		}
	}
	for _, d := range p.devices {
		for _, param := range facts[opClGetProgramBuildInfo] {
			n.fact(topic{op: opClGetProgramBuildInfo, object: id, device: d.id}, fnClGetProgramBuildInfo, param, handle, d.handle)
		}
	}
	if names != "" {
		for i, name := range strings.Split(names, ";") {
			w.kernelFacts(&n, uint64(i), p, handle, name)
		}
	}
	return n.e.Body()
}

func (w *Worker) kernelFacts(n *notebook, number uint64, p *programState, handle uintptr, name string) {
	n.frame.Reset()
	b, err := n.frame.Bytes(len(name) + 1)
	if err != nil {
		return // no fact: the client asks when it needs one
	}
	copy(b, name)
	kernel := w.drv.Call(fnClCreateKernel, handle, driver.Address(b), 0)
	if kernel == 0 {
		return
	}
	defer w.drv.Call(fnClReleaseKernel, kernel)
	count := uint32(0)
	for _, param := range facts[opClGetKernelInfo] {
		value := n.fact(topic{op: opClGetKernelInfo, object: number}, fnClGetKernelInfo, param, kernel)
		if param == clKernelNumArgs && len(value) >= 4 {
			count = binary.LittleEndian.Uint32(value)
		}
	}
	for arg := range min(count, maxKernelArgs) {
		for _, param := range facts[opClGetKernelArgInfo] {
			n.fact(topic{op: opClGetKernelArgInfo, index: uint16(arg), object: number}, fnClGetKernelArgInfo, param, kernel, uintptr(arg))
		}
	}
	for _, d := range p.devices {
		for _, param := range facts[opClGetKernelWorkGroupInfo] {
			n.fact(topic{op: opClGetKernelWorkGroupInfo, object: number, device: d.id}, fnClGetKernelWorkGroupInfo, param, kernel, d.handle)
		}
	}
}

// maxKernelArgs is more than any real kernel has.
const maxKernelArgs = 4096

// adjust makes a device's answer true for a session: the lease's memory, no
// capability that does not cross, no extension that needs functions of its own.
func (w *Worker) adjust(param uint32, value []byte) []byte {
	switch param {
	case clDeviceGlobalMemSize, clDeviceMaxMemAllocSize:
		if len(value) == 8 {
			value = binary.LittleEndian.AppendUint64(nil, min(word(value), w.memory.limit))
		}
	case clDeviceSVMCapabilities:
		value = make([]byte, len(value))
	case clDeviceExecutionCapabilities:
		if len(value) == 8 { // without CL_EXEC_NATIVE_KERNEL
			value = binary.LittleEndian.AppendUint64(nil, word(value)&^2)
		}
	case clDeviceExtensions:
		value = append([]byte(keepExtensions(cString(value))), 0)
	case clDeviceExtensionsVersion:
		value = keepVersionedExtensions(value)
	}
	return value
}

// forwardable are the extensions that work across a session: those of the
// kernel language, and those whose host side is in the calls we forward.
var forwardable = map[string]bool{
	"cl_khr_byte_addressable_store": true, "cl_khr_fp16": true, "cl_khr_fp64": true, "cl_amd_fp64": true,
	"cl_khr_int64_base_atomics": true, "cl_khr_int64_extended_atomics": true,
	"cl_khr_global_int32_base_atomics": true, "cl_khr_global_int32_extended_atomics": true,
	"cl_khr_local_int32_base_atomics": true, "cl_khr_local_int32_extended_atomics": true,
	"cl_khr_3d_image_writes": true, "cl_khr_depth_images": true, "cl_khr_image2d_from_buffer": true,
	"cl_khr_mipmap_image": true, "cl_khr_mipmap_image_writes": true, "cl_khr_select_fprounding_mode": true,
	"cl_khr_subgroups": true, "cl_khr_subgroup_extended_types": true, "cl_khr_subgroup_non_uniform_vote": true,
	"cl_khr_subgroup_ballot": true, "cl_khr_subgroup_non_uniform_arithmetic": true, "cl_khr_subgroup_shuffle": true,
	"cl_khr_subgroup_shuffle_relative": true, "cl_khr_subgroup_clustered_reduce": true, "cl_khr_subgroup_rotate": true,
	"cl_khr_extended_bit_ops": true, "cl_khr_integer_dot_product": true, "cl_khr_expect_assume": true,
	"cl_khr_work_group_uniform_arithmetic": true, "cl_khr_kernel_clock": true, "cl_khr_spir": true, "cl_khr_extended_versioning": true,
	"cl_khr_device_uuid": true, "cl_khr_pci_bus_info": true, "cl_khr_throttle_hints": true, "cl_khr_priority_hints": true,
	"cl_intel_subgroups": true, "cl_intel_subgroups_short": true, "cl_intel_subgroups_char": true, "cl_intel_subgroups_long": true,
	"cl_intel_required_subgroup_size": true, "cl_nv_compiler_options": true, "cl_nv_pragma_unroll": true, "cl_nv_device_attribute_query": true,
	"cl_amd_media_ops": true, "cl_amd_media_ops2": true, "cl_amd_printf": true, "cl_amd_device_attribute_query": true,
	"cl_ext_float_atomics": true,
}

func keepExtensions(all string) string {
	var kept []string
	for name := range strings.FieldsSeq(all) {
		if forwardable[name] {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, " ")
}

// keepVersionedExtensions filters an array of cl_name_version: a version of 4
// bytes and a name of 64.
func keepVersionedExtensions(all []byte) []byte {
	const size = 68
	kept := []byte{}
	for ; len(all) >= size; all = all[size:] {
		if forwardable[cString(all[4:size])] {
			kept = append(kept, all[:size]...)
		}
	}
	return kept
}

func cString(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}
