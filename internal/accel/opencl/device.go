package opencl

import (
	"encoding/binary"
	"strings"
)

// device is the driver's device that the session uses.
type device struct {
	memory           *deviceMemory
	platform, handle uintptr
	platformName     string
	localMemory      uint64 // of a work group
	mipmaps          bool   // images may have levels
	unified          bool   // its memory is the host's
	sharesMemory     bool   // it has coarse-grained shared virtual memory
	clock            clock
}

func (d *device) writeFacts(n *factWriter, id uint64, handle uintptr) {
	for _, param := range facts[opClGetDeviceInfo] {
		n.writeFact(factKey{op: opClGetDeviceInfo, object: id}, fnClGetDeviceInfo, param, handle)
	}
	if d.sharesMemory {
		n.appendFact(factKey{op: opSvmAlloc, object: id}, clDeviceSVMCapabilities, clSuccess, binary.LittleEndian.AppendUint64(nil, svmCoarseGrainBuffer))
	}
}

// adjustInfo corrects a device's answer for a session: the lease's memory, no capability that is
// not forwarded, no extension that needs functions of its own.
func (d *device) adjustInfo(param uint32, value []byte) []byte {
	switch param {
	case clDeviceGlobalMemSize, clDeviceMaxMemAllocSize:
		if len(value) == 8 {
			value = binary.LittleEndian.AppendUint64(nil, min(firstWord(value), d.memory.limit))
		}
	case clDeviceSVMCapabilities: // clients that use svmAlloc have a fact of their own
		value = make([]byte, len(value))
	case clDeviceExecutionCapabilities:
		if len(value) == 8 { // without CL_EXEC_NATIVE_KERNEL
			value = binary.LittleEndian.AppendUint64(nil, firstWord(value)&^2)
		}
	case clDeviceExtensions:
		value = append([]byte(filterExtensions(cString(value))), 0)
	case clDeviceExtensionsVersion:
		value = filterVersionedExtensions(value)
	}
	return value
}

// forwardable are the extensions that work across a session: extensions of the kernel language, and
// extensions whose host side consists of calls that are forwarded.
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

func filterExtensions(all string) string {
	var kept []string
	for name := range strings.FieldsSeq(all) {
		if forwardable[name] {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, " ")
}

// filterVersionedExtensions filters an array of cl_name_version: a version of 4 bytes and a
// name of 64.
func filterVersionedExtensions(all []byte) []byte {
	const size = 68
	kept := []byte{}
	for ; len(all) >= size; all = all[size:] {
		if forwardable[cString(all[4:size])] {
			kept = append(kept, all[:size]...)
		}
	}
	return kept
}
