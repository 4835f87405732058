package plain

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Frames of HTTP/2 (RFC 9113, sections 3.4 and 6).
const (
	clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
	emptySettings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	ping          = "\x00\x00\x08\x06\x00\x00\x00\x00\x00" + "12345678"
	typePing      = 6
	typeGoAway    = 7
)

// readFrame reads a frame and returns its type.
func readFrame(from io.Reader) (byte, error) {
	var head [9]byte
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return 0, err
	}
	_, err := io.CopyN(io.Discard, from, int64(head[0])<<16|int64(head[1])<<8|int64(head[2]))
	return head[3], err
}

// A client may send pings every ten seconds, as those of grpc-go and grpc-java may, even if they arrive
// unevenly and the client has no calls. With its defaults grpc-go ends such a connection at the fourth
// ping.
func TestKeepalivePings(t *testing.T) {
	for name, c := range map[string]struct {
		every time.Duration
		ends  bool
	}{"ten seconds": {9 * time.Second, false}, "flood": {time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := NewServer(nil, Options{})
				defer s.Stop()
				client, served := net.Pipe()
				if err := s.ServeConn(served); err != nil {
					t.Fatal(err)
				}
				var sending sync.WaitGroup
				defer sending.Wait()
				defer client.Close()
				sending.Go(func() {
					for _, err := io.WriteString(client, clientPreface+emptySettings); err == nil; _, err = io.WriteString(client, ping) {
						time.Sleep(c.every)
					}
				})
				answered, ended := 0, false
				for answered < 10 && !ended {
					kind, err := readFrame(client)
					if ended = kind == typeGoAway || err != nil; kind == typePing {
						answered++
					}
				}
				if ended != c.ends {
					t.Errorf("the connection has ended: %t, after %d pings", ended, answered)
				}
			})
		})
	}
}
