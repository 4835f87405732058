package remote

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

// pass gives a parser a message in pieces, and returns it with where it lies and how much
// was copied from one room to the next.
func pass(t *testing.T, p *parser, message []byte, piece int) (data []byte, lies *buffer, copied int) {
	t.Helper()
	var head [recordSize]byte
	head[0] = byte(recordMessage)
	binary.LittleEndian.PutUint32(head[1:], uint32(len(message)))
	rest := append(head[:], message...)
	for {
		before := cap(p.data)
		into := p.space()
		if cap(p.data) != before && p.got == recordSize {
			copied += len(p.data)
		}
		n := copy(into[:min(len(into), piece)], rest)
		rest = rest[n:]
		complete, err := p.filled(n)
		if err != nil {
			t.Fatal(err)
		}
		if complete {
			data, lies = p.nextRecord()
			return data, lies, copied
		}
	}
}

// A long message is copied by little, and gets memory for its claim only after a part of
// it has come.
func TestLongMessagesGrowByTheirClaim(t *testing.T) {
	for _, length := range []int{0, 1, firstSize - 1, firstSize, firstSize + 1, 1 << 20, 16<<20 + 9, 64 << 20} {
		for name, rooms := range map[string]*bufferPool{"in rooms": {}, "in memory of its own": nil} {
			p := &parser{maxMessage: maxLength, buffers: rooms}
			message := make([]byte, length)
			for i := 0; i < length; i += 4096 {
				message[i] = byte(rand.Uint32())
			}
			data, _, copied := pass(t, p, message, 100_000)
			if !bytes.Equal(data, message) || cap(data) != length {
				t.Errorf("%d bytes %s: they are not what was sent, or there is room for %d", length, name, cap(data))
			}
			if most := length/4 + firstSize; copied > most {
				t.Errorf("%d bytes %s: %d bytes were copied, more than %d", length, name, copied, most)
			}
		}
	}
}

func TestClaimIsNotBelievedAtOnce(t *testing.T) {
	const length = 1 << 30
	for have := 1 << 10; have < length/claimFactor; have *= 2 {
		if n := nextSize(have, length); n > have*claimFactor || n <= have {
			t.Errorf("%d bytes of %d have come, and there is room for %d", have, length, n)
		}
	}
	if n := nextSize(length/claimFactor, length); n != length {
		t.Errorf("a tenth has come, and there is room for %d", n)
	}
}

// The messages of a stream lie in the same memory one after the other.
func TestRoomsAreUsedAgain(t *testing.T) {
	var r bufferPool
	p := &parser{maxMessage: maxLength, buffers: &r}
	message := make([]byte, 3<<20)
	places := map[*byte]bool{}
	for range 10 {
		data, lies, _ := pass(t, p, message, 1<<20)
		places[&data[0]] = true
		r.newMessage(lies, data, false).Free()
	}
	r.close()
	if len(places) != 1 {
		t.Errorf("10 messages lay at %d places", len(places))
	}
}

func TestRoomsAreBoundedAndLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r bufferPool
		var list []*buffer
		for range 10 {
			list = append(list, r.get(20<<20))
		}
		for _, x := range list {
			r.put(x)
		}
		if r.mu.Lock(); r.size > maxPooled || len(r.free) != 3 {
			t.Errorf("%d rooms with %d bytes are kept", len(r.free), r.size)
		}
		r.mu.Unlock()
		x := r.get(maxPooled + 1)
		r.put(x)
		if r.mu.Lock(); r.size > maxPooled {
			t.Errorf("%d bytes are kept", r.size)
		}
		r.mu.Unlock()
		time.Sleep(3 * poolIdle)
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.free) > 0 || r.size != 0 || r.timer != nil {
			t.Errorf("%d rooms with %d bytes are kept, though nobody needs them", len(r.free), r.size)
		}
	})
}

func TestRoomsAreLargeEnough(t *testing.T) {
	seen := map[int]int{}
	for n := minPooled; n < 1<<30; n += 1 + n/50 {
		class, size := sizeClass(n)
		if size < n || size-n > n/4+minPooled/4 {
			t.Errorf("%d bytes in a room of %d", n, size)
		}
		if old := seen[class]; old != 0 && old != size {
			t.Errorf("rooms of class %d have %d and %d bytes", class, old, size)
		}
		seen[class] = size
	}
}
