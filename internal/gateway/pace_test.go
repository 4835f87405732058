package gateway_test

import (
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/internal/gateway"
)

// A client that reads a byte now and then does not keep a writer for ever; one that reads fast
// enough may do so for as long as it likes.
func TestPaceConn(t *testing.T) {
	for name, c := range map[string]struct {
		read  int // bytes a second
		fails bool
	}{"nothing": {0, true}, "little": {1 << 10, true}, "enough": {128 << 10, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				var reading sync.WaitGroup
				reading.Go(func() {
					for c.read > 0 {
						if _, err := io.CopyN(io.Discard, client, int64(c.read)); err != nil {
							return
						}
						time.Sleep(time.Second)
					}
				})
				begin, paced := time.Now(), gateway.PaceConn(conn, 10*time.Second)
				var err error
				for n := 0; n < 256 && err == nil; n++ {
					_, err = paced.Write(make([]byte, 64<<10))
				}
				if took := time.Since(begin); (err != nil) != c.fails || c.fails && took > time.Minute {
					t.Errorf("%v after %v", err, took)
				}
				client.Close()
				conn.Close()
				reading.Wait()
			})
		})
	}
}

// A client that reads at once keeps a stream of small messages, however long it is, when each of the
// writes takes some time on a busy machine.
func TestPaceConnSmallMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := gateway.PaceConn(busyConn{}, 10*time.Second)
		for n := range 20_000 {
			if _, err := conn.Write([]byte("data: x\n\n")); err != nil {
				t.Fatalf("message %d: %v", n, err)
			}
		}
	})
}

// busyConn takes two milliseconds for a write.
type busyConn struct{ net.Conn }

func (busyConn) Write(b []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return len(b), nil
}

// SetWriteDeadline fails where a socket's write would.
func (busyConn) SetWriteDeadline(at time.Time) error {
	if !time.Now().Before(at) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// A body that its client stops to send, or sends too slowly, ends its connection, whether the
// handler reads it or not.
func TestBoundBody(t *testing.T) {
	for name, c := range map[string]struct {
		reads bool
		first int // bytes that come at once
	}{"read": {true, 0}, "not read": {false, 0}, "stops after much": {true, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, conn := net.Pipe()
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					r = gateway.BoundBody(w, r, 10*time.Second)
					if c.reads {
						_, _ = io.Copy(io.Discard, r.Body)
					}
				})}
				served := make(chan struct{})
				go func() {
					defer close(served)
					_ = server.Serve(&once{Conn: conn})
				}()
				begin := time.Now()
				var sending sync.WaitGroup
				sending.Go(func() {
					_, err := io.WriteString(client, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000\r\n\r\n"+strings.Repeat("x", c.first))
					for err == nil {
						_, err = client.Write([]byte("x"))
						time.Sleep(time.Second)
					}
				})
				_, _ = io.Copy(io.Discard, client)
				if took := time.Since(begin); took > time.Minute {
					t.Errorf("it was let go after %v", took)
				}
				client.Close()
				server.Close()
				<-served
				sending.Wait()
			})
		})
	}
}
