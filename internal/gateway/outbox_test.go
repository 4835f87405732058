package gateway_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/quota"
)

// TestMessagesToSlowClients: what waits for clients that do not read takes a bounded number of
// bytes, whatever their number, which are free again when they are gone; and a client that reads
// is served meanwhile.
func TestMessagesToSlowClients(t *testing.T) {
	const limit, size, clients, each = 4 << 20, 512 << 10, 16, 6
	for name, to := range map[string]string{"one": "self", "a room": "room:blue"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				echo := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
					switch event, _ := c.Meta("ws.event"); {
					case event == "open":
						return actions{Join: []string{"blue"}}.answer(), nil
					case event == "close":
						return gateway.Answer{}, nil
					case string(c.Body) == "hello":
						return actions{Send: []sendAction{{To: "self", Text: "hello"}}}.answer(), nil
					}
					return actions{Send: []sendAction{{To: to, Text: string(c.Body)}}}.answer(), nil
				})
				g := newGateway(t, gateway.Options{Invoker: echo, Buffers: quota.NewBudget(quota.Requests, limit)}, chatApp())
				stop := start(t, g)
				large := strings.Repeat("x", size)
				var open []*websocket.Conn
				for range clients {
					slow := dialPipe(t, g, "/chat/rooms/blue")
					slow.SetReadLimit(-1)
					open = append(open, slow)
					for range each {
						if slow.Write(t.Context(), 1, []byte(large)) != nil {
							break // it was dropped
						}
						synctest.Wait()
						if queued, held := gateway.Queued(g, "chat"), gateway.Buffered(g); name == "one" && queued > limit+clients*(64<<10) || held > limit {
							t.Fatalf("%d bytes wait for clients, %d are held", queued, held)
						}
					}
				}
				quick := dialPipe(t, g, "/chat/rooms/green")
				open = append(open, quick)
				say(t, quick, "hello")
				if got := hear(t, quick); got != "hello" {
					t.Errorf("a client that reads is told %q", bytes.TrimRight([]byte(got), "x"))
				}
				time.Sleep(time.Minute) // the slow ones are dropped
				if held := gateway.Buffered(g); held != 0 {
					t.Errorf("%d bytes are still held", held)
				}
				for _, c := range open {
					_ = c.CloseNow() // it may be closed already
				}
				stop()
			})
		})
	}
}

// TestAnswersToAFastClient: a client that sends many messages before it reads the answers is slowed
// down, and gets all of them.
func TestAnswersToAFastClient(t *testing.T) {
	tests := map[string]struct{ messages, size int }{"many": {600, 1}, "large": {30, 512 << 10}, "huge": {4, 5 << 20}}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				echo := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
					if event, _ := c.Meta("ws.event"); event != "message" {
						return gateway.Answer{}, nil
					}
					return actions{Send: []sendAction{{To: "self", Text: string(c.Body)}}}.answer(), nil
				})
				g := newGateway(t, gateway.Options{Invoker: echo}, chatApp())
				stop := start(t, g)
				c := dialPipe(t, g, "/chat/rooms/blue")
				c.SetReadLimit(-1)
				go func() {
					text := bytes.Repeat([]byte("x"), test.size)
					for range test.messages {
						if err := c.Write(t.Context(), websocket.MessageText, text); err != nil {
							t.Error(err)
							return
						}
					}
				}()
				time.Sleep(time.Second) // less than the limit of a write
				for n := range test.messages {
					if _, text, err := c.Read(t.Context()); err != nil || len(text) != test.size {
						t.Fatalf("answer %d: %d bytes, %v", n, len(text), err)
					}
				}
				_ = c.CloseNow()
				stop()
			})
		})
	}
}
