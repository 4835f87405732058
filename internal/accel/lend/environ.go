package lend

import (
	"slices"
	"strings"
)

// driverVariables are the environment variables that are passed to a worker: variables of loaders,
// drivers and their compilers, and of Go's runtime. A name that ends in "_" is a prefix.
var driverVariables = []string{
	"PATH", "LD_LIBRARY_PATH", "LANG", "LANGUAGE", "LC_", "TZ",
	"GODEBUG", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "GORACE", "GOCOVERDIR",
	"OCL_ICD_", "OPENCL_", "POCL_", "OCLGRIND_", "CL_", "RUSTICL_", "MESA_", "GALLIUM_", "LP_", "LIBGL_",
	"CUDA_", "NVIDIA_", "NV_", "HSA_", "HIP_", "ROCR_", "ROCM_", "AMD_", "AMDGPU_", "GPU_",
	"ZE_", "ZES_", "NEO_", "IGC_", "INTEL_", "SYCL_", "OMP_", "KMP_",
}

// workerEnviron returns the environment of a worker: the variables of this process that drivers are
// known to need, and those that the operator names. Variables that `outboard run` set for this
// process are dropped: a worker loads the machine's own drivers.
func workerEnviron(environ, more []string) []string {
	borrowed := slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "OUTBOARD_SOCKET=") })
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return !allowsVariable(driverVariables, name) && !slices.Contains(more, name) ||
			strings.HasPrefix(name, "OUTBOARD_") || borrowed && name == "OCL_ICD_VENDORS"
	})
}

func allowsVariable(names []string, name string) bool {
	return slices.ContainsFunc(names, func(allowed string) bool {
		return name == allowed || strings.HasSuffix(allowed, "_") && strings.HasPrefix(name, allowed)
	})
}
