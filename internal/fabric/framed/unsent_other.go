//go:build !linux

package framed

import (
	"net"
	"syscall"
)

// keepUnsentLow does nothing where there is no such option.
func keepUnsentLow(*net.TCPConn) {}

// writable is never sure where there is no such call.
func writable(syscall.RawConn) bool { return false }
