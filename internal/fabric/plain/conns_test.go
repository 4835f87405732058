package plain

import (
	"net"
	"testing"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/grpcconn"
)

// dialFrom opens a connection of HTTP/2 from an address, and reports whether the server begins with it.
func dialFrom(t *testing.T, host byte, addr string) (nc net.Conn, accepted bool) {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, host)}}
	nc, err := d.DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	_, _ = nc.Write([]byte(grpcconn.Preface + settings)) // a refused connection may be reset
	_, err = nc.Read(make([]byte, 9))
	return nc, err == nil
}

// Attack: a client opens connections and makes no calls. An address has half of them at most, and
// other clients are served.
func TestConnectionsAreBounded(t *testing.T) {
	reasons := make(chan string, 1)
	s := serveBounded(t, func(to call.Transport) call.Handler { return proxy{to} }, Options{
		MaxConns: 8, Refused: func(reason string) { reasons <- reason },
	})
	var open []net.Conn
	for range 4 {
		nc, accepted := dialFrom(t, 2, s.addr)
		if !accepted {
			t.Fatalf("%d connections of an address are open, and no more may be", len(open))
		}
		open = append(open, nc)
	}
	for range 8 {
		if _, accepted := dialFrom(t, 2, s.addr); accepted {
			t.Fatal("one more than half of the connections is open")
		}
		if reason := <-reasons; reason != "connections" {
			t.Errorf("the reason is %q", reason)
		}
	}
	if err := s.send(t.Context(), 1); err != nil {
		t.Errorf("beside the attacker: %v", err)
	}
	_ = open[0].Close()
	await(t, "a connection may take the place of one that has ended", func() bool {
		_, accepted := dialFrom(t, 2, s.addr)
		if !accepted {
			<-reasons
		}
		return accepted
	})
}
