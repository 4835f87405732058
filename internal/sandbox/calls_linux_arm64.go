package sandbox

import "golang.org/x/sys/unix"

const (
	nativeArch     = unix.AUDIT_ARCH_AARCH64
	foreignNumbers = 0xffffffff // arm64 has none
)

// nativeCalls are the calls that have other names on other architectures.
var nativeCalls = []uint32{unix.SYS_FSTATAT, unix.SYS_RENAMEAT}

// nativeAttributeCalls are the older ones of attributeCalls: arm64 has none.
var nativeAttributeCalls []uint32

// nativeWatchCalls are the older ones of watchCalls: arm64 has none.
var nativeWatchCalls []uint32

// nativeOwnerCalls are the older ones of ownerCalls: arm64 has none.
var nativeOwnerCalls []uint32
