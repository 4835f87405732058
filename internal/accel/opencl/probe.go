package opencl

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/driver"
)

// platformDevice is a device with the platform that it belongs to.
type platformDevice struct {
	platform, device uintptr
	info             outboard.Device
}

// Probe lists every device of every platform except Outboard's own. The order is that of
// Options.Device. ID and Node are left to the node.
func Probe(drv *driver.Table) ([]outboard.Device, error) {
	all, err := listDevices(drv)
	devices := make([]outboard.Device, 0, len(all))
	for _, f := range all {
		devices = append(devices, f.info)
	}
	return devices, err
}

// listDevices lists the devices of all platforms. A platform that has no devices, or that fails,
// does not hide the others.
func listDevices(drv *driver.Table) ([]platformDevice, error) {
	frame, err := driver.NewFrame()
	if err != nil {
		return nil, err
	}
	defer frame.Close()
	if !drv.Has(fnClGetPlatformIDs) || !drv.Has(fnClGetDeviceIDs) {
		return nil, outboard.Errorf(outboard.NoDevice, "probe opencl", "the library is no OpenCL loader: it has no clGetPlatformIDs")
	}
	platforms, status := handleList(drv, frame, fnClGetPlatformIDs)
	if status != clSuccess && status != clPlatformNotFound {
		return nil, outboard.Errorf(outboard.NoDevice, "probe opencl", "clGetPlatformIDs: error %d", status)
	}
	var all []platformDevice
	for _, p := range platforms {
		name := queryText(drv, frame, fnClGetPlatformInfo, p, clPlatformName)
		if ownPlatform(drv, frame, p, name) {
			continue
		}
		devices, _ := handleList(drv, frame, fnClGetDeviceIDs, p, clDeviceTypeAll)
		for _, d := range devices {
			all = append(all, platformDevice{p, d, describe(drv, frame, name, d)})
		}
	}
	return all, nil
}

const clPlatformNotFound int32 = -1001

// OwnSuffix is Outboard's own answer for CL_PLATFORM_ICD_SUFFIX_KHR.
const OwnSuffix = "OUTBOARD"

func ownPlatform(drv *driver.Table, frame *driver.Frame, platform uintptr, name string) bool {
	return strings.HasPrefix(name, "Outboard") ||
		queryText(drv, frame, fnClGetPlatformInfo, platform, clPlatformICDSuffix) == OwnSuffix
}

func describe(drv *driver.Table, frame *driver.Frame, platform string, d uintptr) outboard.Device {
	number := func(param uintptr) uint64 {
		frame.Reset()
		_, b := query(drv, frame, fnClGetDeviceInfo, d, param)
		switch len(b) {
		case 4:
			return uint64(binary.LittleEndian.Uint32(b))
		case 8:
			return binary.LittleEndian.Uint64(b)
		}
		return 0
	}
	text := func(param uintptr) string { return queryText(drv, frame, fnClGetDeviceInfo, d, param) }
	return outboard.Device{
		API: outboard.OpenCL, Type: deviceType(number(clDeviceType)), Platform: platform,
		Name: text(clDeviceName), Vendor: text(clDeviceVendor), Driver: text(clDriverVersion), Version: text(clDeviceVersion),
		Memory: outboard.Bytes(number(clDeviceGlobalMemSize)), Units: int(number(clDeviceMaxComputeUnits)),
	}
}

func deviceType(bits uint64) outboard.DeviceType {
	switch {
	case bits&clDeviceTypeGPU != 0:
		return outboard.GPU
	case bits&clDeviceTypeAccelerator != 0:
		return outboard.Accelerator
	case bits&clDeviceTypeCPU != 0:
		return outboard.CPU
	}
	return outboard.Custom
}

func queryText(drv *driver.Table, frame *driver.Frame, fn int, object uintptr, param uintptr) string {
	frame.Reset()
	_, b := query(drv, frame, fn, object, param)
	return strings.TrimSpace(cString(b))
}

// handleList calls fn(args..., entries, handles, &count).
func handleList(drv *driver.Table, frame *driver.Frame, fn int, args ...uintptr) ([]uintptr, int32) {
	frame.Reset()
	const most = 1024
	b, err := frame.Bytes(8 + 8*most)
	if err != nil {
		return nil, clOutOfHostMemory
	}
	args = append(args, most, driver.Address(b[8:]), driver.Address(b))
	if status := int32(drv.Call(fn, args...)); status != clSuccess {
		return nil, status
	}
	handles := make([]uintptr, min(binary.LittleEndian.Uint32(b), most))
	for i := range handles {
		handles[i] = uintptr(firstWord(b[8+8*i:]))
	}
	return handles, clSuccess
}

// statusError returns the error of a failed call.
func statusError(function string, status int32) error {
	return fmt.Errorf("%s: OpenCL error %d", function, status)
}
