package gateway_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/quota"
)

// TestLargeMessagesToOtherNodes: messages that are larger than the bus takes reach the members of a
// room on all nodes, and single sockets, in order with small ones.
func TestLargeMessagesToOtherNodes(t *testing.T) {
	bus, budget := &memoryBus{}, quota.NewBudget(quota.Requests, 512<<20)
	var addrs []string
	for _, node := range []string{"harbour", "lighthouse"} {
		g := newGateway(t, gateway.Options{Invoker: invoke(chat), Bus: bus, Node: node, Buffers: budget}, chatApp())
		start(t, g)
		addrs = append(addrs, serve(t, g))
	}
	ann, ben := dial(t, addrs[0], "/chat/rooms/blue"), dial(t, addrs[0], "/chat/rooms/blue")
	cid := dial(t, addrs[1], "/chat/rooms/blue")
	ids := map[*websocket.Conn]string{}
	for _, c := range []*websocket.Conn{ann, ben, cid} {
		c.SetReadLimit(-1)
		ids[c] = hear(t, c)
	}
	for _, size := range []int{512<<10 + 1, 1<<20 - 100, 1 << 20, 2<<20 + 7, 9 << 20} {
		large := strings.Repeat("x", size-1) + "."
		say(t, ann, large)
		say(t, ann, fmt.Sprint("sent ", size))
		for name, c := range map[string]*websocket.Conn{"ann": ann, "ben": ben, "cid": cid} {
			if got := hear(t, c); got != large {
				t.Errorf("%s heard %d bytes, want %d", name, len(got), size)
			}
			if got, want := hear(t, c), fmt.Sprint("sent ", size); got != want {
				t.Errorf("%s heard %d bytes, want %q", name, len(got), want)
			}
		}
		say(t, ann, "/tell "+ids[cid]+" "+large)
		if got := hear(t, cid); got != large {
			t.Errorf("cid was told %d bytes, want %d", len(got), size)
		}
	}
}

// part returns a part of a message of the node lighthouse.
func part(number, done, size uint64, data string) []byte {
	return partOf("lighthouse", number, done, size, data)
}

func partOf(name string, number, done, size uint64, data string) []byte {
	var b []byte
	for _, n := range []uint64{number, done, size} {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return gateway.Envelope(name, 'T', append(b, data...))
}

// TestParts: parts that do not fit together, and those beyond the tenant's budget, are dropped, and
// an incomplete message does not stay.
func TestParts(t *testing.T) {
	tests := map[string][][]byte{
		"no header":             {gateway.Envelope("lighthouse", 'T', []byte("short"))},
		"no beginning":          {part(1, 2, 4, "ab")},
		"no end":                {part(1, 0, 4, "ab")},
		"a gap":                 {part(1, 0, 6, "ab"), part(1, 4, 6, "ef")},
		"twice":                 {part(1, 0, 6, "ab"), part(1, 0, 6, "ab"), part(1, 2, 6, "cdef")},
		"another size":          {part(1, 0, 4, "ab"), part(1, 2, 5, "cd"), part(1, 2, 4, "cd")},
		"too long":              {part(1, 0, 4, "ab"), part(1, 2, 4, "cde")},
		"a size that overflows": {part(1, 0, 1<<64-1, "ab"), part(1, 1<<64-2, 1<<64-1, "c")},
		"beyond the budget":     {part(1, 0, 1<<20+2, "ab"), part(1, 2, 1<<20+2, strings.Repeat("x", 1<<20))},
		"a long name":           {partOf(strings.Repeat("x", 257), 1, 0, 2, "ab")},
		"another letter":        {gateway.Envelope("lighthouse", 'x', []byte("text"))},
	}
	for name, parts := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGateway(t, gateway.Options{Invoker: invoke(chat), Node: "harbour", Buffers: quota.NewBudget(quota.Requests, 1<<20)}, chatApp())
				for _, p := range parts {
					if size, ok := gateway.OpenEnvelope(g, "chat", p); ok {
						t.Errorf("a message of %d bytes", size)
					}
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if held := gateway.Buffered(g); held != 0 {
					t.Errorf("%d bytes are held", held)
				}
				if size, ok := gateway.OpenEnvelope(g, "chat", part(2, 0, 2, "ok")); !ok || size != 2 {
					t.Errorf("the next message: %d bytes, %v", size, ok)
				}
			})
		})
	}
}

// TestManyPartials: what a hostile node begins and does not complete takes a bounded number of
// bytes, of the tenant's budget and of timers and names, and expires.
func TestManyPartials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		budget := quota.NewBudget(quota.Requests, 512<<20)
		g := newGateway(t, gateway.Options{Invoker: invoke(chat), Node: "harbour", Buffers: budget}, chatApp())
		for n := range uint64(1000) {
			gateway.OpenEnvelope(g, "chat", part(n, 0, 2, "x"))
		}
		if held := budget.Held(); held > 256 {
			t.Errorf("%d messages of one byte are held", held)
		}
		if _, ok := gateway.OpenEnvelope(g, "chat", part(0, 1, 2, "y")); !ok {
			t.Error("a message that has begun is not completed")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		const mib = 1 << 20
		for n := range uint64(128) {
			gateway.OpenEnvelope(g, "chat", part(n, 0, 2*mib, strings.Repeat("x", mib)))
		}
		if held := budget.Held(); held > 64*mib {
			t.Errorf("%d bytes of incomplete messages are held", held)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if held := budget.Held(); held != 0 {
			t.Errorf("%d bytes are still held", held)
		}
	})
}

// TestPartsOfLeftRooms: the incomplete messages to a room go with its last member, and those to a
// room of the same name that exists later are messages of their own.
func TestPartsOfLeftRooms(t *testing.T) {
	bus, budget := &memoryBus{}, quota.NewBudget(quota.Requests, 512<<20)
	g := newGateway(t, gateway.Options{Invoker: invoke(chat), Bus: bus, Node: "harbour", Buffers: budget}, chatApp())
	start(t, g)
	addr := serve(t, g)
	stay := dial(t, addr, "/chat/rooms/red")
	hear(t, stay)
	for range 2 {
		c := dial(t, addr, "/chat/rooms/blue")
		hear(t, c)
		publish := func(b []byte) {
			if err := bus.Publish(t.Context(), gateway.RoomSubject(g, "chat", "blue"), b); err != nil {
				t.Error(err)
			}
		}
		publish(part(1, 0, 4, "ab"))
		publish(part(1, 2, 4, "cd"))
		if got := hear(t, c); got != "abcd" {
			t.Errorf("got %q", got)
		}
		publish(part(2, 0, 4, "ab"))
		if n := gateway.Partials(g, "chat"); n != 1 {
			t.Errorf("%d incomplete messages, want 1", n)
		}
		say(t, c, "/leave")
		hear(t, c)
		if n := gateway.Partials(g, "chat"); n != 0 {
			t.Errorf("%d incomplete messages of a room that was left", n)
		}
	}
}
