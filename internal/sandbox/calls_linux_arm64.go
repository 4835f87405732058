package sandbox

import "golang.org/x/sys/unix"

const (
	nativeArch     = unix.AUDIT_ARCH_AARCH64
	foreignNumbers = 0xffffffff // there are none
)

// nativeCalls are the calls that other architectures name differently.
var nativeCalls = []uint32{unix.SYS_FSTATAT, unix.SYS_RENAMEAT}
