package acceptor

import (
	"fmt"
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

// The addresses of this machine, and the networks of IPv6 of one customer, leave a quarter to others.
func TestSlotsOfSites(t *testing.T) {
	for name, address := range map[string]func(host byte) net.IP{
		"this machine": func(host byte) net.IP { return net.IPv4(127, 0, host, 1) },
		"IPv6":         func(host byte) net.IP { return net.ParseIP(fmt.Sprintf("2001:db8:0:%d::1", host)) },
	} {
		s := NewSlots(1024)
		for host := range byte(200) {
			for {
				if _, err := s.Acquire(&net.TCPAddr{IP: address(host)}); err != nil {
					break
				}
			}
		}
		if s.Used() != 768 {
			t.Errorf("%s: %d of 1024 slots are in use", name, s.Used())
		}
		for _, other := range []string{"192.0.2.1", "2001:db8:1::1"} {
			if _, err := s.Acquire(&net.TCPAddr{IP: net.ParseIP(other)}); err != nil {
				t.Errorf("%s: %s: %v", name, other, err)
			}
		}
	}
}

// A node leaves slots to other nodes, and to peers at its address.
func TestSlotsOfNodes(t *testing.T) {
	s := NewSlots(16)
	var releases []func()
	for {
		release, err := s.AcquireFor("dinghy")
		if err != nil {
			break
		}
		releases = append(releases, release)
	}
	if len(releases) != 8 {
		t.Errorf("a node has %d of 16 slots", len(releases))
	}
	if _, err := s.AcquireFor("harbour"); err != nil {
		t.Error(err)
	}
	releases[0]()
	if _, err := s.AcquireFor("dinghy"); err != nil {
		t.Error(err)
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
