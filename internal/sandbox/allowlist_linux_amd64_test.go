package sandbox

import "golang.org/x/sys/unix"

// foreignBit turns a number into one of x86's other instruction set.
const foreignBit = foreignNumbers

// Calls of the kernel's own trampolines, which it lets past every filter: they end a process
// that makes them elsewhere.
const uretprobe, uprobe = 335, 336

// uncalledNative is as uncalled.
var uncalledNative = []uint32{
	unix.SYS_FORK, unix.SYS_VFORK, unix.SYS_PAUSE, unix.SYS_ARCH_PRCTL, unix.SYS_ALARM, uretprobe, uprobe,
}
