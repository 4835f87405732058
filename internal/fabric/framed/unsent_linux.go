package framed

import (
	"net"
	"syscall"

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

// writable says that a small write would not wait: where the operating system says so,
// it has room for a third of what it holds at most.
func writable(raw syscall.RawConn) (ok bool) {
	err := raw.Control(func(fd uintptr) {
		asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(asked, 0)
		ok = n == 1 && err == nil && asked[0].Revents == unix.POLLOUT
	})
	return ok && err == nil
}
