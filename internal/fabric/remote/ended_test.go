package remote

import (
	"net"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// A call that could not begin because the connection has ended, for whatever reason, can be sent
// elsewhere: its error says so, and its request still belongs to the caller.
func TestCallOnEndedConnection(t *testing.T) {
	for name, end := range map[string]func(client, server *Conn, socket net.Conn){
		"closed here":    func(client, _ *Conn, _ net.Conn) { client.Close() },
		"closed by peer": func(_, server *Conn, _ net.Conn) { server.Close() },
		"peer died":      func(_, _ *Conn, socket net.Conn) { socket.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := tcp(t)
			client, server := ends(t, a, b, Options{}, Options{Handler: &unaryEcho{}})
			end(client, server, b)
			<-client.Done()
			for _, size := range []int{1, 2 * maxInlineRequest} {
				freed := false
				m := &call.Message{Data: make([]byte, size), Release: func() { freed = true }}
				if _, _, err := client.Unary(t.Context(), head("Echo"), m); !isUnsent(err) || status.Code(err) != codes.Unavailable || freed {
					t.Errorf("unary of %d bytes: %v, freed: %v", size, err, freed)
				}
			}
			if _, err := client.Open(t.Context(), head("Echo")); !isUnsent(err) || status.Code(err) != codes.Unavailable {
				t.Errorf("stream: %v", err)
			}
		})
	}
}
