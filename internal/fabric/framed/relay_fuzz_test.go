package framed

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/shm"
)

// FuzzRelay relays between a peer that sends whatever frames and a process that writes whatever
// to the control page of its ring. The relay must end when both are gone, without a panic and
// with nothing left behind.
func FuzzRelay(f *testing.F) {
	open := appendOpen(nil, 1, "session", []byte("claim"))
	data := append(header{frameData, 4, 1}.append(nil), "data"...)
	word := func(offset uint16, value uint64) []byte {
		return binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint16(nil, offset), value)
	}
	f.Add(append(open, data...), word(64, 100))
	f.Add(append(open, appendCredit(nil, 1, 1<<31-1)...), word(128, ^uint64(0)))
	f.Add(append(open, header{frameEnd, 0, 1}.append(nil)...), word(0, 77))
	f.Fuzz(func(t *testing.T, wire, script []byte) {
		ring, err := shm.Create(shm.MinArea)
		if err != nil {
			t.Fatal(err)
		}
		control, err := unix.Mmap(int(ring.File().Fd()), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		a, b := net.Pipe()
		c := Server(b, Options{MaxStreams: 4})
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() {
			var relays sync.WaitGroup
			defer relays.Wait()
			for used := false; ; used = true {
				s, err := c.Accept(ctx)
				if err != nil {
					return
				}
				if used { // a ring belongs to one session
					s.Reset(io.ErrClosedPipe)
					continue
				}
				relays.Go(func() { _ = Relay(s, ring) }) // any error is right
			}
		})
		all.Go(func() { _, _ = io.Copy(io.Discard, a) })
		written := make(chan struct{})
		all.Go(func() {
			defer close(written)
			_, _ = a.Write([]byte(preface))
			_, _ = a.Write(wire)
		})
		for ; len(script) >= 10; script = script[10:] {
			at := int(binary.LittleEndian.Uint16(script)) % (len(control) - 8)
			copy(control[at:at+8], script[2:10])
		}
		select { // what is sent to a ring that its process does not read waits until it ends
		case <-written:
		case <-time.After(10 * time.Millisecond):
		}
		_ = ring.Close(shm.Done)
		a.Close()
		<-c.Done()
		c.Close()
		cancel()
		all.Wait()
		_ = unix.Munmap(control)
		ring.Unmap()
	})
}
