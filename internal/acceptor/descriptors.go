package acceptor

import "golang.org/x/sys/unix"

// Share returns how many connections a service of this process may hold: most, or a percentage of the
// process's descriptors if that is less, so that its clients leave some to other services.
func Share(most, percent int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return most
	}
	return int(min(limit.Cur/100*uint64(percent)+limit.Cur%100*uint64(percent)/100, uint64(most))) //nolint:gosec // most is no less
}
