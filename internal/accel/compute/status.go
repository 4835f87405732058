package compute

import "fmt"

// statusNames are OpenCL's names of its result codes.
var statusNames = map[int32]string{
	-1: "CL_DEVICE_NOT_FOUND", -2: "CL_DEVICE_NOT_AVAILABLE", -3: "CL_COMPILER_NOT_AVAILABLE",
	-4: "CL_MEM_OBJECT_ALLOCATION_FAILURE", -5: "CL_OUT_OF_RESOURCES", -6: "CL_OUT_OF_HOST_MEMORY",
	-8: "CL_MEM_COPY_OVERLAP", -11: "CL_BUILD_PROGRAM_FAILURE", -12: "CL_MAP_FAILURE", -13: "CL_MISALIGNED_SUB_BUFFER_OFFSET",
	-14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST", -15: "CL_COMPILE_PROGRAM_FAILURE", -17: "CL_LINK_PROGRAM_FAILURE",
	-30: "CL_INVALID_VALUE", -34: "CL_INVALID_CONTEXT", -36: "CL_INVALID_COMMAND_QUEUE", -38: "CL_INVALID_MEM_OBJECT",
	-42: "CL_INVALID_BINARY", -43: "CL_INVALID_BUILD_OPTIONS", -44: "CL_INVALID_PROGRAM", -45: "CL_INVALID_PROGRAM_EXECUTABLE",
	-46: "CL_INVALID_KERNEL_NAME", -47: "CL_INVALID_KERNEL_DEFINITION", -48: "CL_INVALID_KERNEL", -49: "CL_INVALID_ARG_INDEX",
	-50: "CL_INVALID_ARG_VALUE", -51: "CL_INVALID_ARG_SIZE", -52: "CL_INVALID_KERNEL_ARGS", -53: "CL_INVALID_WORK_DIMENSION",
	-54: "CL_INVALID_WORK_GROUP_SIZE", -55: "CL_INVALID_WORK_ITEM_SIZE", -56: "CL_INVALID_GLOBAL_OFFSET",
	-59: "CL_INVALID_OPERATION", -61: "CL_INVALID_BUFFER_SIZE", -63: "CL_INVALID_GLOBAL_WORK_SIZE",
}

// advice explains some result codes.
var advice = map[int32]string{
	-4:  "the device, or the lease's share of its memory, is full",
	-5:  "the device has too little of something, local memory among others",
	-6:  "the worker holds too much for this session",
	-51: "an argument has another size than the kernel's parameter",
	-54: "the global sizes have to be multiples of the local ones, which the device bounds",
}

// StatusError is a result code of the device's driver.
type StatusError int32

func (e StatusError) Error() string {
	name := statusNames[int32(e)]
	if name == "" {
		name = "error"
	}
	text := fmt.Sprintf("%s (%d)", name, int32(e))
	if why := advice[int32(e)]; why != "" {
		text += ": " + why
	}
	return text
}
