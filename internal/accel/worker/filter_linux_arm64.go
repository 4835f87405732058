package worker

import "golang.org/x/sys/unix"

const (
	nativeArch     = unix.AUDIT_ARCH_AARCH64
	foreignNumbers = 0xffffffff // there are none
)
