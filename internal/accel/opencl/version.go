package opencl

import (
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// newSince lists the functions that were added after OpenCL 1.1, by version. A loader has all of
// them; a call of a function beyond the end of a platform's own dispatch table jumps to whatever
// follows that table in memory.
var newSince = map[int][]string{
	12: {
		"clCreateSubDevices", "clRetainDevice", "clReleaseDevice", "clCreateImage", "clCreateProgramWithBuiltInKernels",
		"clCompileProgram", "clLinkProgram", "clUnloadPlatformCompiler", "clGetKernelArgInfo", "clEnqueueFillBuffer",
		"clEnqueueFillImage", "clEnqueueMigrateMemObjects", "clEnqueueMarkerWithWaitList", "clEnqueueBarrierWithWaitList",
	},
	20: {
		"clCreateCommandQueueWithProperties", "clCreatePipe", "clGetPipeInfo", "clSVMAlloc", "clSVMFree", "clEnqueueSVMFree",
		"clEnqueueSVMMemcpy", "clEnqueueSVMMemFill", "clEnqueueSVMMap", "clEnqueueSVMUnmap", "clCreateSamplerWithProperties",
		"clSetKernelArgSVMPointer", "clSetKernelExecInfo",
	},
	21: {
		"clCloneKernel", "clCreateProgramWithIL", "clEnqueueSVMMigrateMem", "clGetDeviceAndHostTimer", "clGetHostTimer",
		"clGetKernelSubGroupInfo", "clSetDefaultDeviceCommandQueue",
	},
	22: {"clSetProgramReleaseCallback", "clSetProgramSpecializationConstant"},
	30: {"clCreateBufferWithProperties", "clCreateImageWithProperties", "clSetContextDestructorCallback"},
}

// functionsOf removes from a driver's functions those that the platform's version lacks.
func functionsOf(drv *driver.Table, platform uintptr, frame *driver.Frame) *driver.Table {
	version := platformVersion(queryText(drv, frame, fnClGetPlatformInfo, platform, clPlatformVersion))
	var missing []string
	for since, names := range newSince {
		if since > version {
			missing = append(missing, names...)
		}
	}
	return drv.Without(missing)
}

const clPlatformVersion = 0x0901

// platformVersion parses "OpenCL 1.2 ..." as 12. A version that can't be parsed counts as 1.0.
func platformVersion(text string) int {
	var major, minor int
	if _, err := fmt.Sscanf(text, "OpenCL %d.%d", &major, &minor); err != nil {
		return 10
	}
	return 10*major + minor
}
