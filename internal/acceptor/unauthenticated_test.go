package acceptor

import (
	"net"
	"testing"
)

// An address has a bound of its own; of IPv6 a network has, and what is over does not count.
func TestUnauthenticated(t *testing.T) {
	at := func(text string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(text), Port: 7} }
	var u Unauthenticated
	var dones []func()
	for i := range MaxUnauthenticated {
		done, err := u.Add(at([]string{"2001:db8::1", "2001:db8::ffff:2"}[i%2]))
		if err != nil {
			t.Fatal(err)
		}
		dones = append(dones, done)
	}
	if _, err := u.Add(at("2001:db8::3")); err == nil {
		t.Error("one more of the network was accepted")
	}
	for _, other := range []string{"2001:db8:0:1::1", "192.0.2.1", "::ffff:192.0.2.2"} {
		done, err := u.Add(at(other))
		if err != nil {
			t.Errorf("%s: %v", other, err)
			continue
		}
		dones = append(dones, done)
	}
	dones[0]()
	dones[0]()
	if done, err := u.Add(at("2001:db8::3")); err != nil {
		t.Error(err)
	} else {
		done()
	}
	if _, err := u.Add(at("2001:db8::3")); err != nil {
		t.Error(err)
	}
	for _, done := range dones {
		done()
	}
	if n := u.open.Used(); n != 1 {
		t.Errorf("%d are open", n)
	}
}

// Many addresses leave connections to others.
func TestUnauthenticatedOfManyAddresses(t *testing.T) {
	var u Unauthenticated
	all := 0
	for host := range byte(100) {
		for {
			if _, err := u.Add(&net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}); err != nil {
				break
			}
			all++
		}
	}
	if all != 3*MaxUnauthenticated {
		t.Errorf("%d connections of this machine", all)
	}
	if _, err := u.Add(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}); err != nil {
		t.Error(err)
	}
}
