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

// Options are a side's settings. The zero value works.
type Options struct {
	// Handler serves the peer's calls. A Handler that is a call.UnaryHandler too gets
	// calls of one message that way. Nil: the peer may not call.
	Handler call.Handler
	// Inline says that the Handler never blocks: it is run by the goroutine that reads
	// the ring, for calls of one message each way. Without it each call has a goroutine.
	Inline bool
	// Trust says that the peer forwards calls of others, and may say whose: Tenant and
	// Peer of a head are then what the peer wrote, when it wrote them.
	Trust bool
	// Tenant names the tenant of a peer. Default: "uid:1000".
	Tenant func(Peer) string
	// Heap is the size of each of the region's four heaps in bytes, a power of two from
	// 64 KiB to 1 GiB. Memory that is never used costs nothing. Default: 32 MiB. Only
	// the listener's counts.
	Heap int
	// Slots is the length of each ring, a power of two from 8 to 4096. Default: 256.
	// Only the listener's counts.
	Slots int
	// MaxCalls is how many calls may be in flight each way. Default: 1024.
	MaxCalls int
	// MaxMessage is the largest message in bytes that is taken in. Default: 64 MiB.
	MaxMessage int
	// Handshake is how long a peer has to begin. Default: 5 s.
	Handshake time.Duration
	// Logger hears of connections that broke. Default: nobody.
	Logger *slog.Logger

	patience time.Duration // longest, but in tests
}

// A Peer is the process at the other end, as the kernel knew it when the connection
// was made.
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
	o.Heap = or(o.Heap, 32<<20)
	o.Slots = or(o.Slots, 256)
	o.MaxCalls = or(o.MaxCalls, 1024)
	o.MaxMessage = or(o.MaxMessage, 64<<20)
	if o.Handshake == 0 {
		o.Handshake = 5 * time.Second
	}
	if o.patience == 0 {
		o.patience = longest
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Tenant == nil {
		o.Tenant = func(p Peer) string { return "uid:" + strconv.FormatUint(uint64(p.UID), 10) }
	}
}

func or(value, otherwise int) int {
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

// A geometry is what the sizes of a region follow from.
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
