package framed

import (
	"net"

	"golang.org/x/sys/unix"
)

// unsentLow is how much the operating system may hold that it has not sent yet: what
// is written later, but is more urgent, waits behind it.
const unsentLow = 256 << 10

func keepUnsentLow(nc *net.TCPConn) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// Where it is refused, small frames only wait longer.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLow)
	})
}
