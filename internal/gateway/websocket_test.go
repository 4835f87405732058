package gateway_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/metricstest"
)

type sendAction struct {
	To   string `json:"to"`
	Text string `json:"text,omitempty"`
	Data []byte `json:"data,omitempty"`
}

type actions struct {
	Send  []sendAction `json:"send,omitempty"`
	Join  []string     `json:"join,omitempty"`
	Leave []string     `json:"leave,omitempty"`
	Close bool         `json:"close,omitempty"`
}

func (o actions) answer() gateway.Answer {
	b, _ := json.Marshal(o)
	return gateway.Answer{Body: b}
}

// chat is an app with rooms: the path names a room, "/leave" and "/quit" are commands.
func chat(_ context.Context, c gateway.Call) (gateway.Answer, error) {
	event, _ := c.Meta("ws.event")
	id, _ := c.Meta("ws.id")
	room, _ := c.Meta("room")
	code, _ := c.Meta("ws.code")
	all := "room:" + room
	switch {
	case event == "open":
		return actions{Join: []string{room}, Send: []sendAction{{To: "self", Text: id}}}.answer(), nil
	case event == "close":
		return actions{Send: []sendAction{{To: all, Text: "left " + code}}}.answer(), nil
	case string(c.Body) == "/leave":
		return actions{Leave: []string{room}, Send: []sendAction{{To: "self", Text: "you left"}}}.answer(), nil
	case string(c.Body) == "/quit":
		return actions{Close: true, Send: []sendAction{{To: "self", Text: "goodbye"}}}.answer(), nil
	case strings.HasPrefix(string(c.Body), "/tell "):
		to, text, _ := strings.Cut(string(c.Body[6:]), " ")
		return actions{Send: []sendAction{{To: "id:" + to, Text: text}}}.answer(), nil
	}
	return actions{Send: []sendAction{{To: all, Text: string(c.Body)}}}.answer(), nil
}

func chatApp() gateway.App {
	return gateway.App{Name: "chat", Routes: []gateway.Route{{Path: "/rooms/{room}", WebSocket: true, Target: to("chat")}}}
}

// dial opens a WebSocket by the gateway's port.
func dial(t *testing.T, addr, path string) *websocket.Conn {
	t.Helper()
	c, r, err := websocket.Dial(t.Context(), "ws://"+addr+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	t.Cleanup(func() { _ = c.CloseNow() })
	return c
}

func hear(t *testing.T, c *websocket.Conn) string {
	t.Helper()
	_, b, err := c.Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func say(t *testing.T, c *websocket.Conn, text string) {
	t.Helper()
	if err := c.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// TestChat has three people in a room over two nodes.
func TestChat(t *testing.T) {
	bus := &memoryBus{}
	var addrs []string
	for _, node := range []string{"harbour", "lighthouse"} {
		g := newGateway(t, gateway.Options{Invoker: invoke(chat), Bus: bus, Node: node}, chatApp())
		start(t, g)
		addrs = append(addrs, serve(t, g))
	}
	ann, ben, cid := dial(t, addrs[0], "/chat/rooms/blue"), dial(t, addrs[0], "/chat/rooms/blue"), dial(t, addrs[1], "/chat/rooms/blue")
	dan := dial(t, addrs[1], "/chat/rooms/red")
	ids := map[string]string{}
	for name, c := range map[string]*websocket.Conn{"ann": ann, "ben": ben, "cid": cid, "dan": dan} {
		ids[name] = hear(t, c)
	}
	for n := range 20 { // in order, everybody once
		say(t, ann, fmt.Sprint("hello ", n))
	}
	for name, c := range map[string]*websocket.Conn{"ann": ann, "ben": ben, "cid": cid} {
		for n := range 20 {
			if got, want := hear(t, c), fmt.Sprint("hello ", n); got != want {
				t.Fatalf("%s heard %q, want %q", name, got, want)
			}
		}
	}
	say(t, ben, "/tell "+ids["dan"]+" psst") // to another node and another room
	if got := hear(t, dan); got != "psst" {
		t.Errorf("dan heard %q", got)
	}
	say(t, dan, "/tell "+ids["dan"]+" note")
	if got := hear(t, dan); got != "note" {
		t.Errorf("dan heard %q", got)
	}
	say(t, ben, "/leave")
	if got := hear(t, ben); got != "you left" {
		t.Errorf("ben heard %q", got)
	}
	say(t, ann, "without ben")
	if got := hear(t, cid); got != "without ben" {
		t.Errorf("cid heard %q", got)
	}
	say(t, ben, "/quit")
	if got := hear(t, ben); got != "goodbye" {
		t.Errorf("ben heard %q", got)
	}
	if _, _, err := ben.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("ben's connection: %v", err)
	}
	if got := hear(t, cid); got != "left 1000" {
		t.Errorf("cid heard %q of ben", got)
	}
	_ = ann.Close(4001, "tired")
	if got := hear(t, cid); got != "left 4001" {
		t.Errorf("cid heard %q of ann", got)
	}
}

func TestSubscriptionsEnd(t *testing.T) {
	bus := &memoryBus{}
	g := newGateway(t, gateway.Options{Invoker: invoke(chat), Bus: bus}, chatApp())
	stop := start(t, g)
	addr := serve(t, g)
	a, b := dial(t, addr, "/chat/rooms/blue"), dial(t, addr, "/chat/rooms/red")
	hear(t, a)
	hear(t, b)
	if got := bus.open(); got != 3 { // two rooms, and this node's connections
		t.Errorf("%d subscriptions", got)
	}
	go func() { _, _, _ = a.Read(context.Background()) }() // it answers the closing
	go func() { _, _, _ = b.Read(context.Background()) }()
	stop()
	if got := bus.open(); got != 0 {
		t.Errorf("%d subscriptions are left", got)
	}
}

// TestWithoutBus: rooms work on one node when there is no bus, or none answers.
func TestWithoutBus(t *testing.T) {
	for name, bus := range map[string]gateway.Bus{"none": nil, "broken": &memoryBus{fail: true}} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, gateway.Options{Invoker: invoke(chat), Bus: bus}, chatApp())
			start(t, g)
			addr := serve(t, g)
			a, b := dial(t, addr, "/chat/rooms/blue"), dial(t, addr, "/chat/rooms/blue")
			hear(t, a)
			hear(t, b)
			say(t, a, "hello")
			if got := hear(t, b); got != "hello" {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestHandshakes(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(chat), Sockets: 1}, chatApp())
	start(t, g)
	addr := serve(t, g)
	for name, c := range map[string]struct {
		header http.Header
		status int
	}{
		"no upgrade": {http.Header{}, 426},
		"version":    {http.Header{"Connection": {"keep-alive, Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"8"}}, 400},
		"no key":     {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}}, 400},
		"origin": {http.Header{
			"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"},
			"Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Origin": {"https://evil.example"},
		}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequest(http.MethodGet, "http://"+addr+"/chat/rooms/blue", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header = c.header
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			answer := read(t, response)
			response.Body.Close()
			if wantProblem(t, answer); answer.StatusCode != c.status {
				t.Errorf("got %d, want %d", answer.StatusCode, c.status)
			}
		})
	}
	hear(t, dial(t, addr, "/chat/rooms/blue"))
	_, r, err := websocket.Dial(t.Context(), "ws://"+addr+"/chat/rooms/blue", nil)
	if r != nil && r.Body != nil {
		r.Body.Close()
	}
	if err == nil || r.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one too many: %v", err)
	}
}

func TestOrigins(t *testing.T) {
	app := chatApp()
	app.Routes[0].Origins = []string{"*.example.org"}
	g := newGateway(t, gateway.Options{Invoker: invoke(chat)}, app)
	start(t, g)
	c, r, err := websocket.Dial(t.Context(), "ws://"+serve(t, g)+"/chat/rooms/blue", &websocket.DialOptions{HTTPHeader: http.Header{"Origin": {"https://www.example.org"}}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	hear(t, c)
	_ = c.CloseNow()
}

// TestOpenFails: a function that refuses a connection ends it with a code that says
// why.
func TestOpenFails(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want websocket.StatusCode
	}{
		"denied":  {outboard.Errorf(outboard.Denied, "open", "no"), websocket.StatusPolicyViolation},
		"trap":    {errors.New("trap"), websocket.StatusInternalError},
		"closing": {outboard.Errorf(outboard.SessionLost, "open", "no"), websocket.StatusTryAgainLater},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
				calls.Add(1)
				return gateway.Answer{}, c.err
			})
			g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
			stop := start(t, g)
			if _, _, err := dial(t, serve(t, g), "/chat/rooms/blue").Read(t.Context()); websocket.CloseStatus(err) != c.want {
				t.Errorf("got %v, want %v", err, c.want)
			}
			stop() // after what the end would have called
			if n := calls.Load(); n != 1 {
				t.Errorf("it was called %d times", n)
			}
		})
	}
}

// TestWrongOrders: what a function answers badly is in the logs, and does nothing.
func TestWrongOrders(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"no json": {`hello`, `answer to an event: want JSON like {"send": [{"to": "self", "text": "hello"}]}: invalid character 'h' looking for beginning of value`},
		"to":      {`{"send": [{"to": "self", "text": "x"}, {"to": "all", "text": "x"}]}`, `answer to an event: send to "all": want room:NAME, id:ID or self`},
		"no room": {`{"send": [{"to": "room:", "text": "x"}]}`, `answer to an event: send to "room:": want room:NAME, id:ID or self`},
		"name":    {`{"join": [""]}`, `answer to an event: room "": want a name of 1 to 256 bytes`},
		"many":    {`{"join": ["` + strings.Join(strings.Split(fmt.Sprint(make([]int, 300)), " "), `x","`) + `"]}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := invoke(func(_ context.Context, call gateway.Call) (gateway.Answer, error) {
				if string(call.Body) == "bad" {
					return text(c.answer), nil
				}
				if len(call.Body) > 0 {
					return actions{Send: []sendAction{{To: "self", Data: call.Body}}}.answer(), nil
				}
				return gateway.Answer{}, nil
			})
			g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
			start(t, g)
			conn := dial(t, serve(t, g), "/chat/rooms/blue")
			say(t, conn, "bad")
			say(t, conn, "good")
			if got := hear(t, conn); got != "good" {
				t.Errorf("got %q", got)
			}
			var got []string
			for r := range g.Logs(gateway.Filter{App: "chat"}) {
				if r.Err != nil {
					got = append(got, r.Err.Error())
				}
			}
			if c.want != "" {
				if diff := cmp.Diff(got, []string{c.want}); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestRoomsPerConnection(t *testing.T) {
	joined := 0
	var mu sync.Mutex
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		mu.Lock()
		defer mu.Unlock()
		if event, _ := c.Meta("ws.event"); event == "message" {
			joined++
			return actions{Join: []string{fmt.Sprint(joined)}, Send: []sendAction{{To: "room:" + fmt.Sprint(joined), Text: fmt.Sprint(joined)}}}.answer(), nil
		}
		return gateway.Answer{}, nil
	})
	g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
	start(t, g)
	conn := dial(t, serve(t, g), "/chat/rooms/blue")
	for n := 1; n <= 256; n++ {
		say(t, conn, "next")
		if got := hear(t, conn); got != fmt.Sprint(n) {
			t.Fatalf("got %q, want %d", got, n)
		}
	}
	say(t, conn, "next")
	say(t, conn, "next") // when this is called, the one before is over
	for r := range follow(t, g, "chat") {
		if r.Err != nil {
			if got := r.Err.Error(); got != `answer to an event: join "257": a connection is in at most 256 rooms` {
				t.Error(got)
			}
			return
		}
	}
}

func follow(t *testing.T, g *gateway.Gateway, app string) func(func(gateway.Record) bool) {
	return g.Follow(t.Context(), gateway.Filter{App: app})
}

// TestTooLarge: a message beyond the route's limit ends the connection.
func TestTooLarge(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(chat), MaxBody: 100}, chatApp())
	start(t, g)
	c := dial(t, serve(t, g), "/chat/rooms/blue")
	hear(t, c)
	say(t, c, strings.Repeat("x", 101))
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusMessageTooBig {
		t.Errorf("got %v", err)
	}
}

// TestBusyWaits: an event that finds no room is tried again, and none is lost.
func TestBusyWaits(t *testing.T) {
	var mu sync.Mutex
	tries := 0
	f := invoke(func(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
		mu.Lock()
		tries++
		n := tries
		mu.Unlock()
		if n%3 != 0 {
			return gateway.Answer{}, outboard.Errorf(outboard.Busy, "call chat", "full")
		}
		return chat(ctx, c)
	})
	g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
	start(t, g)
	c := dial(t, serve(t, g), "/chat/rooms/blue")
	hear(t, c)
	say(t, c, "one")
	say(t, c, "two")
	if a, b := hear(t, c), hear(t, c); a != "one" || b != "two" {
		t.Errorf("got %q and %q", a, b)
	}
}

// dialPipe opens a WebSocket without a network, so that nothing is buffered on the way.
func dialPipe(t *testing.T, g *gateway.Gateway, path string) *websocket.Conn {
	t.Helper()
	return dialOver(t, g, path, func(c net.Conn) net.Conn { return c })
}

// queued is a connection whose writes wait in a queue, as a network's do: its user is
// never held up.
type queued struct {
	net.Conn
	queue chan []byte
	once  sync.Once
}

func newQueued(c net.Conn) net.Conn {
	q := &queued{Conn: c, queue: make(chan []byte, 1000)}
	go func() {
		for b := range q.queue {
			if _, err := c.Write(b); err != nil {
				return
			}
		}
	}()
	return q
}

func (q *queued) Write(b []byte) (int, error) {
	q.queue <- bytes.Clone(b)
	return len(b), nil
}

func (q *queued) Close() error {
	q.once.Do(func() { close(q.queue) })
	return q.Conn.Close()
}

func dialOver(t *testing.T, g *gateway.Gateway, path string, wrap func(net.Conn) net.Conn) *websocket.Conn {
	t.Helper()
	return dialWith(t, g, path, websocket.CompressionDisabled, wrap)
}

func dialWith(t *testing.T, g *gateway.Gateway, path string, compression websocket.CompressionMode, wrap func(net.Conn) net.Conn) *websocket.Conn {
	t.Helper()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go g.ServeConn(server, nil)
		return wrap(client), nil
	}}
	c, r, err := websocket.Dial(t.Context(), "ws://chat"+path, &websocket.DialOptions{CompressionMode: compression, HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Body != nil {
		r.Body.Close()
	}
	return c
}

// TestSlowSocket: a client that does not read the messages of a room is dropped, because too much
// waits for it or because it takes too long, and the room goes on for the others.
func TestSlowSocket(t *testing.T) {
	for name, pause := range map[string]time.Duration{"too much": 0, "too long": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				registry := prometheus.NewRegistry()
				g := newGateway(t, gateway.Options{Invoker: invoke(chat), Metrics: registry}, chatApp())
				stop := start(t, g)
				slow, quick := dialPipe(t, g, "/chat/rooms/blue"), dialPipe(t, g, "/chat/rooms/blue")
				hear(t, slow)
				hear(t, quick)
				sent, got := 0, ""
				for got != "left 1006" {
					sent++
					say(t, quick, "hello")
					got = hear(t, quick)
					time.Sleep(pause)
				}
				if pause == 0 && sent < 256 || pause > 0 && sent > 20 {
					t.Errorf("it was dropped after %d messages", sent)
				}
				want := "# HELP outboard_gateway_websockets_dropped_total WebSockets that were closed because they did not read what was sent.\n" +
					"# TYPE outboard_gateway_websockets_dropped_total counter\noutboard_gateway_websockets_dropped_total{app=\"chat\"} 1\n"
				if err := metricstest.Compare(registry, strings.NewReader(want), "outboard_gateway_websockets_dropped_total"); err != nil {
					t.Error(err)
				}
				_ = slow.CloseNow()
				_ = quick.CloseNow()
				stop()
			})
		})
	}
}

// TestLastWords: what a client sends before it closes is heard, in order, though the
// function is slow.
func TestLastWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &notes{}
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			time.Sleep(time.Second)
			event, _ := c.Meta("ws.event")
			kind, _ := c.Meta("ws.kind")
			code, _ := c.Meta("ws.code")
			seen.add("%s %s%s %s", event, kind, code, c.Body)
			return gateway.Answer{}, nil
		})
		g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
		stop := start(t, g)
		c := dialPipe(t, g, "/chat/rooms/x")
		for n := range 3 {
			say(t, c, fmt.Sprint(n))
		}
		if err := c.Write(t.Context(), websocket.MessageBinary, []byte("last")); err != nil {
			t.Fatal(err)
		}
		_ = c.Close(4000, "")
		time.Sleep(time.Minute)
		want := []string{"open  ", "message text 0", "message text 1", "message text 2", "message binary last", "close 4000 "}
		if diff := cmp.Diff(seen.take(), want); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// TestBehind: a client whose messages wait for a slow function is not taken for dead,
// though its answers to pings wait behind them.
func TestBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 30
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			if event, _ := c.Meta("ws.event"); event == "message" {
				time.Sleep(20 * time.Second)
			}
			return actions{Send: []sendAction{{To: "self", Text: string(c.Body)}}}.answer(), nil
		})
		g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
		stop := start(t, g)
		c := dialOver(t, g, "/chat/rooms/x", newQueued)
		go func() {
			for n := range messages {
				if err := c.Write(context.Background(), websocket.MessageText, []byte(fmt.Sprint(n))); err != nil {
					t.Error(err)
				}
			}
		}()
		hear(t, c) // of its opening
		for n := range messages {
			if got := hear(t, c); got != fmt.Sprint(n) {
				t.Errorf("got %q, want %d", got, n)
			}
		}
		_ = c.CloseNow()
		stop()
	})
}

// TestLate: a socket that comes to a hub which was closed meanwhile ends.
func TestLate(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(chat)}, chatApp())
	if why := gateway.LateSocket(g, "chat"); why == nil || why.Error() != "the app was removed" {
		t.Errorf("got %v", why)
	}
}

// TestPing: a client that is silent stays, one that answers no ping is let go.
func TestPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		closed := make(chan string, 1)
		f := invoke(func(ctx context.Context, c gateway.Call) (gateway.Answer, error) {
			if event, _ := c.Meta("ws.event"); event == "close" {
				code, _ := c.Meta("ws.code")
				closed <- code
			}
			return gateway.Answer{}, nil
		})
		g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
		stop := start(t, g)
		begin := time.Now()
		alive, dead := net.Pipe()
		go func() { _, _ = io.Copy(io.Discard, alive) }()
		g.ServeConn(dead, []byte("GET /chat/rooms/x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"))
		if code := <-closed; code != "1006" {
			t.Errorf("code %s", code)
		}
		if took := time.Since(begin); took < 30*time.Second || took > 90*time.Second {
			t.Errorf("it was let go after %v", took)
		}
		alive.Close()
		stop()
	})
}

// TestAppGone: connections of an app that is gone are closed, and their function
// hears of it no more than once.
func TestAppGone(t *testing.T) {
	g := newGateway(t, gateway.Options{Invoker: invoke(chat)}, chatApp())
	start(t, g)
	c := dial(t, serve(t, g), "/chat/rooms/blue")
	hear(t, c)
	if err := g.SetApps(nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("got %v", err)
	}
}

// TestAnswersOfStoppingNodes: the answer of a call that is in progress when the node stops reaches
// its client before the socket closes.
func TestAnswersOfStoppingNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			if event, _ := c.Meta("ws.event"); event != "message" {
				return gateway.Answer{}, nil
			}
			time.Sleep(time.Second)
			return actions{Send: []sendAction{{To: "self", Text: "answer to " + string(c.Body)}}}.answer(), nil
		})
		g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
		stop := start(t, g)
		c := dialPipe(t, g, "/chat/rooms/x")
		say(t, c, "a question")
		synctest.Wait() // the call has begun
		stopped := make(chan struct{})
		go func() {
			stop()
			close(stopped)
		}()
		if got := hear(t, c); got != "answer to a question" {
			t.Errorf("got %q", got)
		}
		if _, _, err := c.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("the socket ended with %v", err)
		}
		<-stopped
	})
}

// TestLargeMessages: a client that reads receives messages that are larger than what may wait for
// it, also behind another one.
func TestLargeMessages(t *testing.T) {
	const size = 6 << 20
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
		if event, _ := c.Meta("ws.event"); event != "message" {
			return gateway.Answer{}, nil
		}
		return actions{Send: []sendAction{{To: "self", Text: "small"}, {To: "self", Text: string(c.Body)}}}.answer(), nil
	})
	g := newGateway(t, gateway.Options{Invoker: f}, chatApp())
	start(t, g)
	c := dial(t, serve(t, g), "/chat/rooms/x")
	c.SetReadLimit(-1)
	for range 3 {
		say(t, c, strings.Repeat("x", size))
		if got := hear(t, c); got != "small" {
			t.Errorf("got %d bytes", len(got))
		}
		if got := hear(t, c); len(got) != size {
			t.Errorf("got %d bytes, want %d", len(got), size)
		}
	}
}
