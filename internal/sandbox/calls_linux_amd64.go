package sandbox

import "golang.org/x/sys/unix"

const (
	nativeArch     = unix.AUDIT_ARCH_X86_64
	foreignNumbers = 0x40000000 // __X32_SYSCALL_BIT
)

// nativeCalls are the calls that newer architectures have replaced.
var nativeCalls = []uint32{
	unix.SYS_NEWFSTATAT, unix.SYS_OPEN, unix.SYS_CREAT, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK,
	unix.SYS_MKDIR, unix.SYS_RMDIR, unix.SYS_UNLINK, unix.SYS_RENAME, unix.SYS_RENAMEAT, unix.SYS_LINK, unix.SYS_SYMLINK,
	unix.SYS_GETDENTS, unix.SYS_DUP2, unix.SYS_PIPE,
	unix.SYS_POLL, unix.SYS_SELECT, unix.SYS_EPOLL_WAIT, unix.SYS_EVENTFD, unix.SYS_SIGNALFD,
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_GETPGRP, unix.SYS_ALARM, unix.SYS_PAUSE, unix.SYS_TIME,
	unix.SYS_ARCH_PRCTL,
}

// nativeAttributeCalls are the older ones of attributeCalls.
var nativeAttributeCalls = []uint32{unix.SYS_CHMOD, unix.SYS_UTIME, unix.SYS_UTIMES, unix.SYS_FUTIMESAT}

// nativeWatchCalls are the older ones of watchCalls.
var nativeWatchCalls = []uint32{unix.SYS_EPOLL_CREATE}

// nativeOwnerCalls are the older ones of ownerCalls.
var nativeOwnerCalls = []uint32{unix.SYS_CHOWN, unix.SYS_LCHOWN}
