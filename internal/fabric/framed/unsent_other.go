//go:build !linux

package framed

import (
	"net"
	"syscall"
)

// limitUnsent does nothing: there is no such option.
func limitUnsent(*net.TCPConn) {}

// writable always returns false: there is no such system call.
func writable(syscall.RawConn) bool { return false }
