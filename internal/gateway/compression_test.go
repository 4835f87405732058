package gateway_test

import (
	"context"
	"encoding/hex"
	"math/rand/v2"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/outboard-run/outboard/internal/gateway"
)

// incompressible returns a text of that many bytes that compresses to half of them.
func incompressible(size int) string {
	b := make([]byte, size/2)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return hex.EncodeToString(b)
}

func dialCompressed(t *testing.T, g *gateway.Gateway, path string) *websocket.Conn {
	t.Helper()
	c := dialWith(t, g, path, websocket.CompressionNoContextTakeover, func(c net.Conn) net.Conn { return c })
	c.SetReadLimit(-1)
	return c
}

// heap returns the bytes of live objects.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // a pool drops its values at the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Clients that accept compression and read nothing do not hold a compressed copy each of the message
// that all of them are sent; a client that reads gets the message meanwhile.
func TestCompressedMessagesToSlowClients(t *testing.T) {
	const limit, size, clients = 8 << 20, 1 << 20, 64
	synctest.Test(t, func(t *testing.T) {
		echo := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			switch event, _ := c.Meta("ws.event"); event {
			case "open":
				return actions{Join: []string{"blue"}}.answer(), nil
			case "close":
				return gateway.Answer{}, nil
			}
			return actions{Send: []sendAction{{To: "room:blue", Text: string(c.Body)}}}.answer(), nil
		})
		g := newGateway(t, gateway.Options{Invoker: echo}, chatApp())
		gateway.LimitCompression(g, limit)
		stop := start(t, g)
		var open []*websocket.Conn
		for range clients {
			open = append(open, dialCompressed(t, g, "/chat/rooms/blue"))
		}
		quick := dialCompressed(t, g, "/chat/rooms/blue")
		synctest.Wait()
		text, before := incompressible(size), heap()
		say(t, quick, text)
		synctest.Wait()
		if held := heap() - before; held > 3*limit {
			t.Errorf("a message of %d bytes to %d clients holds %d", size, clients, held)
		}
		if held := gateway.Compressing(g); held == 0 || held > limit {
			t.Errorf("compressed messages hold %d bytes, of %d", held, int64(limit))
		}
		if got := hear(t, quick); got != text {
			t.Fatalf("a client that reads is sent %d other bytes", len(got))
		}
		for _, slow := range open {
			_ = slow.CloseNow() // it may be closed already
		}
		synctest.Wait()
		say(t, quick, text) // its answer is compressed
		if got := hear(t, quick); got != text {
			t.Fatalf("a client that reads is sent %d other bytes, compressed", len(got))
		}
		synctest.Wait()
		if held := gateway.Compressing(g); held != 0 {
			t.Errorf("%d bytes are held without slow clients", held)
		}
		_ = quick.CloseNow()
		stop()
		if held := gateway.Buffered(g); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
	})
}

// The state with which a compressed message is read counts until the message is complete.
func TestCompressedMessagesThatStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, gateway.Options{Invoker: invoke(chat)}, chatApp())
		stop := start(t, g)
		const clients, least = 4, 40 << 10 // of the window of DEFLATE and its tables
		var open []*websocket.Conn
		for range clients {
			var conn net.Conn
			c := dialWith(t, g, "/chat/rooms/blue", websocket.CompressionNoContextTakeover, func(c net.Conn) net.Conn {
				conn = c
				return c
			})
			hear(t, c)
			if _, err := conn.Write([]byte("\x41\x81\x00\x00\x00\x00\x00")); err != nil { // a compressed text, masked, to be continued
				t.Fatal(err)
			}
			open = append(open, c)
			synctest.Wait()
			if held := gateway.Buffered(g); held < int64(len(open)*least) {
				t.Errorf("the beginnings of %d messages hold %d bytes", len(open), held)
			}
		}
		for _, c := range open {
			_ = c.CloseNow() // its message is not complete
		}
		synctest.Wait()
		if held := gateway.Buffered(g); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
		stop()
	})
}

// A client that begins a message and does not end it holds its bytes for the client timeout, and not
// for ever: other clients of the tenant would find no room for theirs.
func TestMessagesThatStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGateway(t, gateway.Options{Invoker: invoke(chat)}, chatApp())
		stop := start(t, g)
		var conn net.Conn
		c := dialWith(t, g, "/chat/rooms/blue", websocket.CompressionDisabled, func(c net.Conn) net.Conn {
			conn = c
			return c
		})
		hear(t, c)
		if _, err := conn.Write([]byte("\x01\x81\x00\x00\x00\x00a")); err != nil { // a text, masked, to be continued
			t.Fatal(err)
		}
		synctest.Wait()
		if gateway.Buffered(g) == 0 {
			t.Error("the beginning of a message is not counted")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
			t.Errorf("a message that stops: %v", err)
		}
		_ = c.CloseNow()
		synctest.Wait()
		if held := gateway.Buffered(g); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
		stop()
	})
}
