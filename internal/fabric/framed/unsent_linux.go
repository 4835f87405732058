package framed

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent bounds the unsent bytes that the operating system queues (TCP_NOTSENT_LOWAT): later
// frames of higher priority wait behind them.
const maxUnsent = 256 << 10

func limitUnsent(nc *net.TCPConn) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		// If it is not supported, small frames only wait longer.
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
	})
}

// writable reports whether a small write would not block: the kernel reports POLLOUT when a third
// of its buffer is free.
func writable(raw syscall.RawConn) (ok bool) {
	err := raw.Control(func(fd uintptr) {
		asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(asked, 0)
		ok = n == 1 && err == nil && asked[0].Revents == unix.POLLOUT
	})
	return ok && err == nil
}
