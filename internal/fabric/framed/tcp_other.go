//go:build !linux

package framed

import (
	"net"
	"syscall"
)

// tune sets the options of a connection that all systems have.
func tune(nc *net.TCPConn) { _ = nc.SetNoDelay(true) }

// writable always returns false: there is no such system call.
func writable(syscall.RawConn) bool { return false }
