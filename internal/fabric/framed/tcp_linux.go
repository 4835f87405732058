package framed

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsent bounds the unsent bytes that the operating system queues (TCP_NOTSENT_LOWAT): later
// frames of higher priority wait behind them.
const maxUnsent = 256 << 10

// maxRetransmission bounds the time between two retransmissions of lost data, in ms: TCP doubles it
// each time (RFC 6298, section 5.5), so a cut of 2 s is a silence of 3 s or more, and of the time
// until the peer counts as dead the network would have half. It is the least bound that the kernel
// accepts.
const maxRetransmission = 1000

// tune sets the options of a connection. Where one is not supported, small frames only wait longer,
// or (before Linux 6.15) a cut of the network is bridged later.
func tune(nc *net.TCPConn) {
	_ = nc.SetNoDelay(true)
	raw, err := nc.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsent)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MAX_MS, maxRetransmission)
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
