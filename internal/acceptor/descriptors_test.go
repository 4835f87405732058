package acceptor

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Services share the descriptors that a process may have, where these are few.
func TestShare(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if got := Share(100, 50); got != 100 {
		t.Errorf("with many descriptors: %d, want 100", got)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Fatal(err)
		}
	}()
	if got := Share(20_000, 75); got != 192 {
		t.Errorf("with 256 descriptors: %d, want 192", got)
	}
	var u Unauthenticated
	from, added := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}, 0
	for ; added < 256; added++ {
		if _, err := u.Add(from); err != nil {
			break
		}
	}
	if added != 25 {
		t.Errorf("%d connections of an address that has not authenticated, want 25", added)
	}
}
