package sandbox

import (
	"fmt"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// attackWatches watches files with Go's own instance of epoll and with new ones, on threads that
// existed before watches were refused and on others, and in a child.
func attackWatches(c *Config) (failed []error) {
	begin, done := make(chan struct{}), make(chan []error)
	for range 4 {
		go func() {
			runtime.LockOSThread()
			<-begin
			done <- watch()
		}()
	}
	if err := RefuseWatches(c.Calls); err != nil {
		return []error{err}
	}
	close(begin)
	for range 4 {
		failed = append(failed, <-done...)
	}
	failed = append(failed, watch()...)
	expect(&failed, "another filter", rawCall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC), unix.EPERM)
	// Go's files go on to work, those that are opened later without the poller.
	if _, err := os.ReadFile("/proc/self/stat"); err != nil {
		failed = append(failed, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return append(failed, err)
	}
	if _, err := w.Write([]byte{1}); err != nil {
		failed = append(failed, err)
	}
	if n, err := r.Read(make([]byte, 2)); n != 1 {
		failed = append(failed, fmt.Errorf("read %d bytes from a pipe: %w", n, err))
	}
	return failed
}

func watch() (failed []error) {
	event := unix.EpollEvent{Events: unix.EPOLLIN}
	for fd := range 16 {
		expect(&failed, fmt.Sprintf("watch by instance %d", fd), unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, 0, &event), unix.EPERM)
	}
	_, err := unix.EpollCreate1(0)
	expect(&failed, "an instance", err, unix.EPERM)
	return failed
}

// An operator's own call remains allowed.
func TestWatchesOfAnOperator(t *testing.T) {
	for _, instruction := range watchFilter([]uint32{unix.SYS_EPOLL_CTL}) {
		if instruction.Code == unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K && instruction.K == unix.SYS_EPOLL_CTL {
			t.Error("epoll_ctl is refused")
		}
	}
}
