package function

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"math"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/outboard-run/outboard/internal/function/tempfs"
)

// The error codes of WASI preview 1 that are returned here.
const (
	wasiOK      = 0
	wasiBadFD   = 8
	wasiFault   = 21
	wasiInvalid = 28
	wasiNoSup   = 58
	lastStdFD   = 2
	wasiModule  = wasi_snapshot_preview1.ModuleName
)

// provideWASI provides the engine's WASI preview 1, and replaces the functions that would change an
// instance in a way that a reset does not undo (descriptors and the exit), and the functions that
// take as long as their arguments say.
func provideWASI(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(wasiModule)
	wasi_snapshot_preview1.NewFunctionExporter().ExportFunctions(b)
	export(b, "proc_exit", procExit, []api.ValueType{i32})
	export(b, "random_get", randomGet, []api.ValueType{i32, i32}, i32)
	export(b, "poll_oneoff", pollOneoff, []api.ValueType{i32, i32, i32, i32}, i32)
	export(b, "fd_renumber", unsupported, []api.ValueType{i32, i32}, i32)
	provideFiles(b)
	_, err := b.Instantiate(ctx)
	return err
}

func procExit(_ context.Context, _ api.Module, stack []uint64) {
	panic(&exit{uint32(stack[0])}) //nolint:forbidigo // the engine's way for a host function to end a call
}

// randomGet fills memory with random bytes in chunks, so that the deadline is met even for all of a
// memory.
func randomGet(ctx context.Context, m api.Module, stack []uint64) {
	to, ok := m.Memory().Read(uint32(stack[0]), uint32(stack[1]))
	stack[0] = wasiFault
	if !ok {
		return
	}
	s := slotOf(ctx)
	for len(to) > 0 && s.meter.mayContinue() {
		n, _ := rand.Read(to[:min(len(to), 1<<20)]) // it never fails
		to = to[n:]
		s.meter.chargeBytes(n * 16) // it is slower than copying
	}
	stack[0] = wasiOK
}

func unsupported(_ context.Context, _ api.Module, stack []uint64) { stack[0] = wasiNoSup }

const (
	// maxVectors bounds the vectors of one read or write, as IOV_MAX does.
	maxVectors = 1024
	// maxSubscriptions bounds the subscriptions of one poll.
	maxSubscriptions = 1024
	// bytesPerVector is the charge for a vector or subscription, in copied bytes.
	bytesPerVector = 64
)

// write gathers vectors of a guest's memory, address and size each, and stores the number of bytes
// at result.
func (s *slot) write(memory api.Memory, fd uint32, vectors, count, result uint64) tempfs.Errno {
	out := &s.stdout
	switch {
	case fd == 2:
		out = &s.stderr
	case fd != 1:
		return wasiBadFD
	}
	if uint32(count) > maxVectors {
		return wasiInvalid
	}
	list, ok := memory.Read(uint32(vectors), 8*uint32(count))
	if !ok {
		return wasiFault
	}
	var written uint32
	for ; len(list) > 0; list = list[8:] {
		b, ok := memory.Read(binary.LittleEndian.Uint32(list), binary.LittleEndian.Uint32(list[4:]))
		if !ok {
			return wasiFault
		}
		n, _ := out.Write(b)
		s.meter.chargeBytes(min(n, out.limit) + bytesPerVector)
		written += uint32(n)
	}
	return writeSize(memory, result, written)
}

// The layout of subscription and event (WASI preview 1, typenames.witx).
const (
	subscriptionSize, eventSize = 48, 32
	subscriptionTag             = 8
	subscriptionFD              = 16
	subscriptionTimeout         = 24
	subscriptionFlags           = 40
	eventError, eventType       = 8, 10

	tagClock, tagRead, tagWrite = 0, 1, 2
)

// pollOneoff waits for the first of some clocks, or finds that standard streams are ready, which
// they always are.
func pollOneoff(ctx context.Context, m api.Module, stack []uint64) {
	s := slotOf(ctx)
	stack[0] = s.poll(m.Memory(), uint32(stack[0]), uint32(stack[1]), uint32(stack[2]), uint32(stack[3]))
	s.meter.mayContinue()
}

func (s *slot) poll(memory api.Memory, in, out, count, result uint32) (code uint64) {
	if count == 0 || count > maxSubscriptions {
		return wasiInvalid
	}
	subscriptions, ok := memory.Read(in, count*subscriptionSize)
	events, also := memory.Read(out, count*eventSize)
	if !ok || !also {
		return wasiFault
	}
	s.meter.chargeBytes(int(count) * (subscriptionSize + eventSize + bytesPerVector))
	wait, code := shortestWait(subscriptions)
	if code != wasiOK {
		return code
	}
	if wait > 0 {
		s.sleep(wait)
	}
	n := uint32(0)
	for ; len(subscriptions) > 0; subscriptions = subscriptions[subscriptionSize:] {
		if sub := subscriptions[:subscriptionSize]; isReady(sub, wait) {
			writeEvent(events[n*eventSize:][:eventSize], sub)
			n++
		}
	}
	if !memory.WriteUint32Le(result, n) {
		return wasiFault
	}
	return wasiOK
}

// shortestWait returns how many nanoseconds it takes until the first subscription is ready.
func shortestWait(subscriptions []byte) (wait int64, code uint64) {
	wait = math.MaxInt64
	for ; len(subscriptions) > 0; subscriptions = subscriptions[subscriptionSize:] {
		switch subscriptions[subscriptionTag] {
		case tagClock:
			if binary.LittleEndian.Uint16(subscriptions[subscriptionFlags:]) != 0 {
				return 0, wasiNoSup // an absolute time
			}
			wait = min(wait, timeoutOf(subscriptions))
		case tagRead, tagWrite:
			wait = 0
		default:
			return 0, wasiInvalid
		}
	}
	return wait, wasiOK
}

func timeoutOf(subscription []byte) int64 {
	return int64(min(binary.LittleEndian.Uint64(subscription[subscriptionTimeout:]), math.MaxInt64))
}

func isReady(subscription []byte, waited int64) bool {
	return subscription[subscriptionTag] != tagClock || timeoutOf(subscription) <= waited
}

func writeEvent(event, subscription []byte) {
	clear(event)
	copy(event, subscription[:subscriptionTag]) // the user data
	tag := subscription[subscriptionTag]
	event[eventType] = tag
	if tag != tagClock && binary.LittleEndian.Uint32(subscription[subscriptionFD:]) > lastStdFD {
		event[eventError] = wasiBadFD
	}
}
