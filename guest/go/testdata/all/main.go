// Command all is a function for tests that uses all of package guest: the first word of a request
// selects the operation.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() {
	guest.Handle(handle)
	guest.Warm(func() { warmed.runs, warmed.after = warmed.runs+1, collections() })
}

// warmed records the runs of Warm, and the number of collections before each.
var warmed struct {
	runs  int
	after uint32
}

func collections() uint32 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.NumGC
}

func main() {}

var (
	calls int
	kept  [][]byte
)

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := bytes.Cut(request, []byte(" "))
	switch string(verb) {
	case "copy": // the response begins in the arena
		b := guest.Alloc(len(rest))
		copy(b, rest)
		return b, nil
	case "part": // the request's own bytes
		return rest, nil
	case "heap":
		return append([]byte("heap "), rest...), nil
	case "align":
		a, b := guest.Alloc(3), guest.Alloc(5)
		return fmt.Append(nil, address(a)%16, address(b)%16, len(a), cap(b)), nil
	case "fill": // more than the arena has
		for range 3 {
			kept = append(kept, guest.Alloc(40<<20))
		}
		return fmt.Append(nil, len(kept[2])), nil
	case "garbage":
		return garbage()
	case "depth": // whether the stack moves when it is used
		return stack()
	case "warm":
		return fmt.Append(nil, warmed.runs, collections()-warmed.after), nil
	case "count":
		calls++
		return strconv.AppendInt(nil, int64(calls), 10), nil
	case "fail":
		return nil, errors.New(string(rest))
	case "import":
		resource, err := guest.Import(string(rest))
		if err != nil {
			return nil, err
		}
		resource.Close()
		return []byte("imported"), nil
	case "call":
		return guest.Function("price").Call(rest)
	case "book":
		return book(string(rest))
	case "secret":
		return guest.Secret(string(rest))
	case "kernel":
		return kernel(rest)
	case "arena":
		return arena(rest)
	case "meta":
		value, ok := guest.Meta(string(rest))
		if !ok {
			return nil, errors.New("none")
		}
		return []byte(value), nil
	case "random":
		return fmt.Append(nil, guest.Rand().Uint64()), nil
	}
	return nil, errors.New("no verb " + string(verb))
}

// stack returns the address of a variable before and after a deep call: Go copies a growing stack
// to another place.
func stack() ([]byte, error) {
	var here byte
	before := place(&here)
	used := deep(10)
	if after := place(&here); after != before {
		return nil, fmt.Errorf("the stack has moved from %#x to %#x", before, after)
	}
	return fmt.Append(nil, used), nil
}

// deep uses 3 KiB of the stack for each level.
//
//go:noinline
func deep(levels int) int {
	var frame [3 << 10]byte
	if levels == 0 {
		return 0
	}
	frame[levels] = 1
	return deep(levels-1) + int(frame[levels])
}

//go:noinline
func place(b *byte) uintptr { return uintptr(unsafe.Pointer(b)) }

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// garbage allocates far more garbage than the memory can hold, and returns the final size
// of the memory.
func garbage() ([]byte, error) {
	before := guest.Alloc(1 << 20)
	before[1<<19] = 7
	for i := range 1000 {
		kept = append(kept[:0], make([]byte, 1<<20))
		kept[0][i] = 1
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if before[1<<19] != 7 {
		return nil, errors.New("the arena changed")
	}
	return strconv.AppendUint(nil, m.HeapSys>>20, 10), nil
}

func book(who string) ([]byte, error) {
	seats := guest.Bucket("seats")
	defer seats.Close()
	name := []byte(who)
	err := seats.Txn(guest.PutNew(who, []byte("math")), guest.Add("free", -1, 0), guest.Put("last", name),
		guest.PutFor("recent", name, time.Hour), guest.Missing("closed"))
	if err != nil {
		return nil, err
	}
	if _, none, err := seats.Get("nobody"); none != 0 || err != nil {
		return nil, fmt.Errorf("found: %d, %w", none, err)
	}
	free, revision, err := seats.Get("free")
	if err == nil {
		err = seats.Txn(guest.At("free", revision), guest.Delete("never"))
	}
	return fmt.Append(nil, string(free), " 0"), err // none of the 0 operations failed
}

// kernel converts a text to capitals on a device, and counts its letters.
func kernel(b []byte) ([]byte, error) {
	gpu, err := guest.ImportDevice("gpu")
	if err != nil {
		return nil, err
	}
	defer gpu.Close()
	capitals, count := gpu.BufferOf(b), gpu.Buffer(4)
	gpu.Program("kernel void upper()", "-w").Launch("upper", guest.Items(len(b)).Groups(1), capitals, count, uint32(100), guest.Local(16))
	text, err := capitals.Read(0, len(b))
	if err != nil {
		return nil, err
	}
	number, err := count.Read(0, 4)
	if err != nil {
		return nil, err
	}
	count.Free()
	if err := gpu.Wait(); err != nil {
		return nil, err
	}
	info, err := gpu.Info()
	return fmt.Append(nil, string(text), " ", binary.LittleEndian.Uint32(number), " ", string(info)), err
}

func arena(b []byte) ([]byte, error) {
	shared, err := guest.Arena("photos").Bytes()
	if err != nil {
		return nil, err
	}
	before := bytes.Clone(shared[:4])
	copy(shared, b)
	return fmt.Append(nil, len(shared), " ", string(before)), nil
}
