package acceptor

import (
	"net"
	"testing"

	"github.com/outboard-run/outboard"
)

// One address leaves slots to others, and others to the next ones.
func TestSlots(t *testing.T) {
	s := NewSlots(16)
	at := func(host byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, host), Port: 7} }
	var releases []func()
	for host, want := range []int{8, 4, 2, 1, 1, 0} {
		got := 0
		for {
			release, err := s.Acquire(at(byte(host)))
			if err != nil {
				if outboard.KindOf(err) != outboard.Busy {
					t.Error(err)
				}
				break
			}
			got++
			releases = append(releases, release)
		}
		if got != want {
			t.Errorf("address %d has %d slots, want %d", host, got, want)
		}
	}
	for _, release := range releases {
		release()
		release()
	}
	if s.Used() != 0 || len(s.held) != 0 {
		t.Errorf("%d slots are in use, by %v", s.Used(), s.held)
	}
}

// Processes of this machine may have all slots, of which there is at least one.
func TestSlotsOfProcesses(t *testing.T) {
	for _, size := range []int{0, 8} {
		s := NewSlots(size)
		for range max(size, 1) {
			if _, err := s.Acquire(&net.UnixAddr{}); err != nil {
				t.Error(err)
			}
		}
		if _, err := s.Acquire(&net.UnixAddr{}); outboard.KindOf(err) != outboard.Busy {
			t.Errorf("one more than %d: %v", s.Size(), err)
		}
	}
}
