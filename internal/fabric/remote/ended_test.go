package remote

import (
	"context"
	"net"
	"testing"
	"time"

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
			callEnded(t, client)
		})
	}
}

// The same holds for a call that begins as soon as Done is closed, while the connection is still
// ending its streams: here it waits in Close of its socket.
func TestCallOnEndingConnection(t *testing.T) {
	a, b := tcp(t)
	closing := make(chan struct{})
	client, _ := ends(t, heldClose{a, closing}, b, Options{}, Options{Handler: &unaryEcho{}})
	b.Close()
	<-client.Done()
	callEnded(t, client)
	close(closing)
}

// callEnded makes calls on a connection that has ended.
func callEnded(t *testing.T, client *Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, size := range []int{1, 2 * maxInlineRequest} {
		freed := false
		m := &call.Message{Data: make([]byte, size), Release: func() { freed = true }}
		if _, _, err := client.Unary(ctx, head("Echo"), m); !isUnsent(err) || status.Code(err) != codes.Unavailable || freed {
			t.Errorf("unary of %d bytes: %v, freed: %v", size, err, freed)
		}
	}
	if _, err := client.Open(ctx, head("Echo")); !isUnsent(err) || status.Code(err) != codes.Unavailable {
		t.Errorf("stream: %v", err)
	}
}

// heldClose is a connection whose Close waits until a channel is closed.
type heldClose struct {
	net.Conn
	until <-chan struct{}
}

func (h heldClose) Close() error {
	<-h.until
	return h.Conn.Close()
}
