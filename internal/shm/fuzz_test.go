package shm

import (
	"encoding/binary"
	"sync"
	"testing"
	"unsafe"
)

// FuzzHostilePeer lets the other end scribble over the control page and the areas
// while both directions are in use. Each step of the script is an offset and a
// value. No call may panic, give out a slice beyond the area, or hang after the
// ring is closed.
func FuzzHostilePeer(f *testing.F) {
	word := func(offset uint16, value uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(nil, offset), value)
	}
	f.Add(word(offDir+sizeDir+offHead, 100))
	f.Add(word(offDir+sizeDir+offHead, MinArea+1))
	f.Add(word(offDir+offTail, 1))
	f.Add(word(offDir+offTail, ^uint64(0)))
	f.Add(append(word(offDir+sizeDir+offHead, 4096), word(offDir+sizeDir+offHead, 8)...))
	f.Add(append(word(offClosed, 77), word(offClosed, 0)...))
	f.Add(append(word(offArea, 1<<40), word(offDir+offSpaceSleeper, 9)...))
	f.Fuzz(func(t *testing.T, script []byte) {
		r, peer := pair(t, MinArea)
		control := unsafe.Slice((*byte)(peer.mem.control), pageSize)
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				b, err := r.Next(1)
				if err != nil {
					return
				}
				check(t, r, b, r.in.buf)
				r.Release(len(b)/2 + 1)
			}
		})
		wg.Go(func() {
			for {
				b, err := r.Reserve(1)
				if err != nil {
					return
				}
				check(t, r, b, r.out.buf)
				b[0], b[len(b)-1] = 1, 1
				r.Commit(len(b)/2 + 1)
			}
		})
		for ; len(script) >= 10; script = script[10:] {
			at := int(binary.LittleEndian.Uint16(script)) % (pageSize - 8)
			copy(control[at:at+8], script[2:10])
			for _, d := range []*direction{&peer.in.direction, &peer.out.direction} {
				ringAlways(d.data, d.dataSleeper)
				ringAlways(d.space, d.spaceSleeper)
			}
		}
		r.Close(Done)
		wg.Wait()
		_, _ = r.Next(1)
		_, _ = r.Reserve(1)
		_ = r.TryNext()
	})
}

func check(t *testing.T, r *Ring, b, area []byte) {
	if len(b) == 0 || len(b) > r.Area() || cap(b) != len(b) {
		t.Errorf("slice of %d bytes, capacity %d", len(b), cap(b))
	}
	first, last := uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&area[len(area)-1]))
	if first < uintptr(unsafe.Pointer(&area[0])) || first+uintptr(len(b))-1 > last {
		t.Error("slice outside of the area")
	}
}

// TestPeerThatLiesIsCorrupt has one case for each rule of the positions.
func TestPeerThatLiesIsCorrupt(t *testing.T) {
	for name, lie := range map[string]func(r, peer *Ring) error{
		"head past the area": func(r, peer *Ring) error {
			peer.out.direction.head.Store(MinArea + 1)
			_, err := r.Next(1)
			return err
		},
		"head goes back": func(r, peer *Ring) error {
			peer.out.direction.head.Store(100)
			if _, err := r.Next(1); err != nil {
				return err
			}
			peer.out.direction.head.Store(99)
			_, err := r.Next(1)
			return err
		},
		"tail before anything was written": func(r, peer *Ring) error {
			peer.in.direction.tail.Store(1)
			_, err := r.Reserve(1)
			return err
		},
		"tail goes back": func(r, peer *Ring) error {
			r.Commit(len(must(r.Reserve(1))))
			peer.in.direction.tail.Store(100)
			must(r.Reserve(1))
			peer.in.direction.tail.Store(99)
			_, err := r.Reserve(1)
			return err
		},
		"closed word is cleared again": func(r, peer *Ring) error {
			peer.shared.Store(1 + uint32(Corrupt))
			_, _ = r.Next(1)
			peer.shared.Store(0)
			_, err := r.Next(1)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, peer := pair(t, MinArea)
			if got, want := lie(r, peer), Corrupt.Err(); got == nil || got.Error() != want.Error() {
				t.Errorf("got %v, want %v", got, want)
			}
			if reason, closed := peer.Closed(); name[:6] != "closed" && (!closed || reason != Corrupt) {
				t.Errorf("the peer is told %v, %t", reason, closed)
			}
		})
	}
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
