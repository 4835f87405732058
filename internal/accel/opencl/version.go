package opencl

import (
	"fmt"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// newSince are the functions that came after OpenCL 1.1, by version. A loader
// has all of them; behind one that the platform's own table is too short for
// lies whatever comes after that table in memory.
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

// functionsOf leaves of a driver's functions those that a platform has.
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

// platformVersion reads "OpenCL 1.2 ..." as 12. What can't be read is as old as can be.
func platformVersion(text string) int {
	var major, minor int
	if _, err := fmt.Sscanf(text, "OpenCL %d.%d", &major, &minor); err != nil {
		return 10
	}
	return 10*major + minor
}
