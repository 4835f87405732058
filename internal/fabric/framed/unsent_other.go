//go:build !linux

package framed

import (
	"net"
	"syscall"
)

// limitUnsent does nothing where there is no such option.
func limitUnsent(*net.TCPConn) {}

// writable is never sure where there is no such call.
func writable(syscall.RawConn) bool { return false }
