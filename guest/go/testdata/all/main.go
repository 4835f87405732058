// Command all is a function for tests that uses all that package guest has: the first
// word of a request says what.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"unsafe"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(handle) }

func main() {}

var kept [][]byte

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := bytes.Cut(request, []byte(" "))
	switch string(verb) {
	case "copy": // the answer begins in the arena
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
	case "fill": // more than there is
		for range 3 {
			kept = append(kept, guest.Alloc(40<<20))
		}
		return fmt.Append(nil, len(kept[2])), nil
	case "garbage":
		return garbage()
	case "import":
		_, err := guest.Import(string(rest))
		return nil, err
	case "call":
		return guest.Function("price").Call(rest)
	case "bucket":
		return book(string(rest))
	case "secret":
		return guest.Secret(string(rest))
	case "arena":
		return arena(rest)
	case "meta":
		value, ok := guest.Meta(string(rest))
		return fmt.Append(nil, value, " ", ok), nil
	case "rand":
		return fmt.Append(nil, guest.Rand().Uint64()), nil
	}
	return nil, errors.New("no verb " + string(verb))
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

// garbage makes far more of it than memory has room for, and says how large the memory
// became.
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
	err := seats.Txn(guest.Missing(who), guest.Add("free", -1, 0), guest.Put(who, []byte("math")))
	if err != nil {
		return nil, err
	}
	free, revision, err := seats.Get("free")
	_, none, _ := seats.Get("nobody")
	return fmt.Append(nil, string(free), " ", revision, " ", none), err
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
