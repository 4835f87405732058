package cltest

import (
	"maps"
	"os/exec"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// Driver is a local OpenCL driver that serves as the oracle.
type Driver struct {
	name     string
	vendors  string            // value of OCL_ICD_VENDORS; empty leaves the variable
	programs []string          // programs that make sense with the driver; empty means all
	odd      map[string]string // cases that the driver does not pass, with the reason
}

// choose makes a command use the driver.
func (d *Driver) choose(cmd *exec.Cmd) {
	if d.vendors != "" {
		cmd.Env = append(cmd.Environ(), "OCL_ICD_VENDORS="+d.vendors)
	}
}

// PoCL is the main oracle: the system's driver, found as any program finds it.
func PoCL() *Driver {
	odd := maps.Clone(oddWithPoCL)
	for _, row := range oddOrders {
		for function := range strings.FieldsSeq(row.functions) {
			odd["order/"+function] = row.reason
		}
	}
	return &Driver{name: "pocl", odd: odd}
}

const oclgrindLibrary = "/usr/lib/oclgrind/liboclgrind-rt-icd.so"

// Oclgrind is the second driver: an interpreter of OpenCL 1.2 that may be used from one thread only
// and executes nothing before a program waits for it. Without it the test is skipped, unless
// need.Variable names "oclgrind".
func Oclgrind(t testing.TB) *Driver {
	t.Helper()
	need.Program(t, "oclgrind")
	return &Driver{
		name:     "oclgrind",
		vendors:  oclgrindLibrary,
		programs: []string{"image", "kernel", "map", "memory", "program"},
		odd:      oddWithOclgrind,
	}
}

// oddOrders lists the functions that do not report errors in the specification's order over PoCL,
// with the reason.
var oddOrders = []struct{ functions, reason string }{
	{reason: "PoCL 3.1 checks in another order, or not at all", functions: `
		clGetPlatformInfo clGetDeviceIDs clSetDefaultDeviceCommandQueue clGetDeviceAndHostTimer
		clGetHostTimer clCreateContext clCreateContextFromType clCreateBuffer clCreateBufferWithProperties
		clCreateSubBuffer clCreateImage clCreateImageWithProperties clCreateImage2D clCreateImage3D
		clGetSupportedImageFormats clGetImageInfo clCreateSampler clCreateProgramWithBinary
		clCreateProgramWithIL clSetProgramSpecializationConstant clCreateKernel clSetKernelArg
		clGetKernelWorkGroupInfo clEnqueueReadBuffer clEnqueueWriteBuffer clEnqueueReadBufferRect
		clEnqueueWriteBufferRect clEnqueueReadImage clEnqueueWriteImage clEnqueueMapBuffer clEnqueueMapImage
		clEnqueueFillBuffer clEnqueueFillImage clEnqueueCopyBuffer clEnqueueCopyImage
		clEnqueueCopyImageToBuffer clEnqueueCopyBufferToImage clEnqueueMigrateMemObjects
		clEnqueueWaitForEvents clUnloadPlatformCompiler clGetKernelSubGroupInfo
		clEnqueueSVMFree clEnqueueSVMMemcpy clEnqueueSVMMemFill clEnqueueSVMMap clEnqueueSVMUnmap
		clEnqueueSVMMigrateMem clSetKernelArgSVMPointer clSetKernelExecInfo`},
	{reason: "PoCL 3.1 crashes on some of the arguments", functions: `
		clCreateProgramWithSource clCreateProgramWithBuiltInKernels clBuildProgram clCompileProgram
		clLinkProgram clEnqueueCopyBufferRect clEnqueueNDRangeKernel clEnqueueTask`},
	{reason: "PoCL 3.1 has what a borrowed device has not", functions: `clEnqueueNativeKernel`},
}

// Cases that fail over the local driver. On a borrowed device their own checks must hold.
var (
	oddWithPoCL = map[string]string{
		"event/callback_of_failure":   "PoCL 3.1 never calls back for a command whose wait list failed",
		"event/old_wait":              "PoCL 3.1 aborts: clEnqueueWaitForEvents is not there",
		"event/set_property":          "PoCL 3.1 crashes in clSetCommandQueueProperty",
		"failure/after_failure":       "PoCL 3.1 never ends a command whose wait list had failed before it was enqueued",
		"process/daemon_used":         "as fork_calls",
		"process/driver_dies":         "PoCL 3.1 aborts the process at a launch with too much local memory",
		"process/fork_calls":          "PoCL's threads are not there in a forked child, which waits for them for ever",
		"signal/alternate_stack_kept": "the compiler in PoCL replaces the thread's alternate stack",
		"signal/settings_kept":        "the compiler in PoCL installs handlers, for SIGUSR1 too",
		"signal/sigwait_late":         "PoCL's threads do not block signals, so SIGTERM kills the process",
		"thread/first_calls":          "PoCL 3.1 answers CL_DEVICE_NOT_FOUND while another thread initialises it",
		"unload/fork_after":           "as process/fork_calls; PoCL is never unloaded",
		"unload/sigwait_after":        "as signal/sigwait_late; PoCL is never unloaded",
	}

	oddWithOclgrind = map[string]string{
		"image/map_refused":       "oclgrind 21.10 maps outside of an image",
		"kernel/kernel_info":      "oclgrind 21.10 answers attributes from memory that is gone",
		"program/build_info":      "oclgrind 21.10 answers a binary type that was never set",
		"kernel/launch_refused":   "oclgrind 21.10 divides by a local size of 0",
		"kernel/set_refused":      "oclgrind 21.10 crashes on wrong sizes of arguments",
		"map/refused":             "oclgrind 21.10 crashes on wrong pointers",
		"memory/transfer_refused": "oclgrind 21.10 crashes on offsets whose sum wraps",
		"program/link_refused":    "oclgrind 21.10 crashes on programs that were not compiled",
		"program/pieces_refused":  "oclgrind 21.10 crashes on null pieces",
	}
)
