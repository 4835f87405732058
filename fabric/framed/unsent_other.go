//go:build !linux

package framed

import "net"

// keepUnsentLow does nothing where there is no such option.
func keepUnsentLow(*net.TCPConn) {}
