package node

import (
	"bytes"
	"net"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/ipc"
)

// sendRaw returns a node's end of a local connection, on which a process has sent a packet.
func sendRaw(t testing.TB, packet []byte) *ipc.Conn {
	t.Helper()
	conn, file, err := ipc.Pair(borrow.LocalOptions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	defer file.Close()
	socket, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	_, _ = socket.Write(packet) // one that is too long is lost
	return conn
}

// A first message that is no request is refused, with an error of its own kind.
func TestReceiveFirst(t *testing.T) {
	for name, test := range map[string]struct {
		packet string
		ok     bool
	}{
		"request":        {`{"type":"open","sessions":3,"claim":"YWJj"}`, true},
		"unknown member": {`{"type":"open","sessions":3,"claim":"YWJj","later":1}`, true},
		"another type":   {`{"type":"lease"}`, false},
		"no claim":       {`{"type":"open","claim":1}`, false},
		"nothing":        {``, false},
	} {
		t.Run(name, func(t *testing.T) {
			var r borrow.LocalRequest
			err := receiveFirst(t.Context(), sendRaw(t, []byte(test.packet)), borrow.TypeOpen, &r)
			switch {
			case test.ok && (err != nil || string(r.Claim) != "abc" || r.Sessions != 3):
				t.Errorf("got %+v, %v", r, err)
			case !test.ok && outboard.KindOf(err) != outboard.Protocol:
				t.Errorf("got %v, want a protocol error", err)
			}
		})
	}
}

func FuzzSessionRequest(f *testing.F) {
	f.Add([]byte(`{"type":"open","claim":"YWJj"}`))
	f.Add([]byte(`{"type":"open","claim":1}`))
	f.Add([]byte(`{"type":"open","body_file":true}`))
	f.Add(bytes.Repeat([]byte("x"), 40<<10))
	f.Fuzz(func(t *testing.T, packet []byte) {
		var r borrow.LocalRequest
		if err := receiveFirst(t.Context(), sendRaw(t, packet), borrow.TypeOpen, &r); err == nil && len(r.Claim) > len(packet) {
			t.Errorf("a claim of %d bytes from a packet of %d", len(r.Claim), len(packet))
		}
	})
}
