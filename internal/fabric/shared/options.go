package shared

import (
	"fmt"
	"log/slog"
	"math/bits"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

// Options configure one side of a connection. The zero value selects the defaults.
type Options struct {
	// Handler serves the peer's calls. A Handler that is also a call.UnaryHandler serves unary
	// calls as such. Nil: the peer's calls are refused.
	Handler call.Handler
	// Inline declares that the Handler never blocks: unary calls run in the goroutine that reads
	// the ring. Without it every call has a goroutine.
	Inline bool
	// Trust declares that the peer forwards calls of other callers: the Tenant of a head is then
	// the value that the peer sent, "" for a caller without identity, and so is Peer if the peer
	// sent one.
	Trust bool
	// Tenant returns the tenant of a peer. Default: "uid:1000".
	Tenant func(Peer) string
	// Heap is the size of each of the region's four heaps in bytes, a power of two from 64 KiB to 1
	// GiB. Memory that is never used is never allocated. Default: 32 MiB. The listener's value
	// applies.
	Heap int
	// Slots is the length of each ring, a power of two from 8 to 4096. Default: 256. The listener's
	// value applies.
	Slots int
	// MaxCalls bounds the calls in flight each way, and MaxCalls - MaxCalls/4 bounds the calls of
	// one service: further calls are refused with codes.ResourceExhausted. Default: 16384.
	MaxCalls int
	// MaxBuffered bounds the bytes of streams that were received each way and not read: the
	// stream that exceeds it ends with codes.ResourceExhausted. Default: 256 MiB.
	MaxBuffered int
	// MaxMessage bounds a received message in bytes. Default: 64 MiB.
	MaxMessage int
	// Handshake bounds the duration of the handshake. Default: 5 s.
	Handshake time.Duration
	// Logger logs peers that broke the protocol. Default: none.
	Logger *slog.Logger

	maxSleep time.Duration // overridden in tests
}

// A Peer is the process at the other end, with its credentials when the connection was made.
type Peer struct {
	PID      int
	UID, GID uint32
}

func (p Peer) String() string { return "pid:" + strconv.Itoa(p.PID) }

const (
	minHeap, maxHeap   = 64 << 10, 1 << 30
	minSlots, maxSlots = 8, 4096
	maxCalls           = 1 << 20
)

func (o *Options) setDefaults() {
	o.Heap = orDefault(o.Heap, 32<<20)
	o.Slots = orDefault(o.Slots, 256)
	o.MaxCalls = orDefault(o.MaxCalls, 16384)
	o.MaxBuffered = orDefault(o.MaxBuffered, 256<<20)
	o.MaxMessage = orDefault(o.MaxMessage, 64<<20)
	if o.Handshake == 0 {
		o.Handshake = 5 * time.Second
	}
	if o.maxSleep == 0 {
		o.maxSleep = maxSleep
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Tenant == nil {
		o.Tenant = func(p Peer) string { return "uid:" + strconv.FormatUint(uint64(p.UID), 10) }
	}
}

func orDefault(value, otherwise int) int {
	if value == 0 {
		return otherwise
	}
	return value
}

func (o *Options) validate() error {
	if err := (geometry{heap: o.Heap, slots: o.Slots}).check(); err != nil {
		return err
	}
	if o.MaxCalls < 1 || o.MaxCalls > maxCalls {
		return outboard.Errorf(outboard.Invalid, "shared options", "max calls of %d: want 1 to %d", o.MaxCalls, maxCalls)
	}
	if o.MaxMessage < 1 || int64(o.MaxMessage) > 1<<32-1 {
		return outboard.Errorf(outboard.Invalid, "shared options", "max message of %d bytes: want 1 to 4 GiB", o.MaxMessage)
	}
	return nil
}

// A geometry has the sizes that determine a region's layout.
type geometry struct{ heap, slots int }

func (g geometry) check() error {
	if g.heap < minHeap || g.heap > maxHeap || bits.OnesCount(uint(g.heap)) != 1 {
		return outboard.Errorf(outboard.Invalid, "shared options", "heap of %d bytes: want a power of two from %d to %d", g.heap, minHeap, maxHeap)
	}
	if g.slots < minSlots || g.slots > maxSlots || bits.OnesCount(uint(g.slots)) != 1 {
		return outboard.Errorf(outboard.Invalid, "shared options", "ring of %d slots: want a power of two from %d to %d", g.slots, minSlots, maxSlots)
	}
	return nil
}

func (g geometry) String() string { return fmt.Sprintf("%d slots, %d bytes", g.slots, g.heap) }
