package opencl

// Result codes, from CL/cl.h.
const (
	clSuccess           int32 = 0
	clAllocationFailure int32 = -4
	clOutOfResources    int32 = -5
	clOutOfHostMemory   int32 = -6
	clExecStatusError   int32 = -14
	clInvalidValue      int32 = -30
	clInvalidOperation  int32 = -59
)

// Parameters and values, from CL/cl.h.
const (
	clTrue  = 1
	clFalse = 0

	clComplete = 0

	clContextPlatform = 0x1084

	clDeviceGlobalMemSize         = 0x101F
	clDeviceLocalMemSize          = 0x1023
	clKernelLocalMemSize          = 0x11B2
	clDeviceMaxMemAllocSize       = 0x1010
	clDeviceExecutionCapabilities = 0x1029
	clDeviceExtensions            = 0x1030
	clDeviceExtensionsVersion     = 0x1060
	clDeviceSVMCapabilities       = 0x1053
	clDeviceName                  = 0x102B
	clDeviceVendor                = 0x102C
	clDriverVersion               = 0x102D
	clDeviceVersion               = 0x102F
	clDeviceType                  = 0x1000
	clDeviceMaxComputeUnits       = 0x1002
	clDeviceTypeAll               = 0xFFFFFFFF
	clDeviceTypeCPU               = 1 << 1
	clDeviceTypeGPU               = 1 << 2
	clDeviceTypeAccelerator       = 1 << 3
	clPlatformName                = 0x0902
	clPlatformVendor              = 0x0903
	clPlatformICDSuffix           = 0x0920

	clQueueProperties  = 0x1093
	clQueueOutOfOrder  = 1 << 0
	clQueueProfiling   = 1 << 1
	clQueueOnDevice    = 1 << 2
	clMemSize          = 0x1102
	clImageElementSize = 0x1111

	clMemAccess      = 1<<0 | 1<<1 | 1<<2
	clMemReadWrite   = 1 << 0
	clMemUseHostPtr  = 1 << 3
	clMemCopyHostPtr = 1 << 5
	clMemHostFlags   = 1<<7 | 1<<8 | 1<<9

	clProgramBinarySizes = 0x1165
	clProgramBuildLog    = 0x1183
	clProgramBinaries    = 0x1166
	clProgramKernelNames = 0x1168
	clKernelNumArgs      = 0x1191

	clEventExecutionStatus   = 0x11D3
	clProfilingCommandQueued = 0x1280
	clProfilingCommandStart  = 0x1282
	clProfilingCommandEnd    = 0x1283
	profilingTimes           = 5
)

// isCommand tells, by function number, whether the function enqueues a command.
var isCommand = func() []bool {
	table := make([]bool, len(functionNames))
	for i, name := range functionNames {
		table[i] = len(name) > 9 && name[:9] == "clEnqueue"
	}
	return table
}()
