package shared

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric/call"
)

type parrot struct{}

func (parrot) Serve(s call.ServerStream) error {
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = s.Send(m)
		}
		if err != nil {
			return err
		}
	}
}

func (parrot) ServeUnary(_ context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
	return m, call.End{}, nil
}

// sockets are two connected ones.
func sockets(t testing.TB) [2]*net.UnixConn {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var both [2]*net.UnixConn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "socket")
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		both[i] = c.(*net.UnixConn)
	}
	return both
}

// against is an end of a connection whose other end is the test: it has the
// region mapped, and the socket.
func against(t testing.TB, s side, o Options) (c *Conn, r *region, socket *net.UnixConn) {
	t.Helper()
	o.setDefaults()
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	g := geometry{heap: o.Heap, slots: o.Slots}
	f, err := newRegion(g)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if r, err = openRegion(os.NewFile(uintptr(fd), "again"), g); err != nil {
		t.Fatal(err)
	}
	both := sockets(t)
	if c, err = newConnOn(both[0], f, s, hello{serves: true, geometry: g}, &o); err != nil {
		t.Fatal(err)
	}
	c.start()
	t.Cleanup(func() {
		both[1].Close()
		c.Close()
		// A context that ended may still be waking the reader.
		for begin := time.Now(); c.region.refs.Load() != 0 && time.Since(begin) < 2*time.Minute; {
			runtime.Gosched()
		}
		if n := c.region.refs.Load(); n != 0 {
			t.Errorf("%d still refer to the region", n)
		}
		r.release()
	})
	return c, r, both[1]
}

// forger posts to the end that listens, as its dialler would.
func forger(r *region) (*producer, *peerHeap) { return newProducer(r, 0), newPeerHeap(r, 1) }

func outside() desc {
	return desc{kind: kindCall, method: 0, flags: flagDefine, head: ref{unit: inSlot}, data: ref{unit: inSlot}}
}

// TestForgedDescriptorEndsTheConnection posts one descriptor each that no honest
// peer would.
func TestForgedDescriptorEndsTheConnection(t *testing.T) {
	name := appendString(nil, "/a.B/C")
	with := func(change func(d *desc)) func(*region) {
		return func(r *region) {
			d := outside()
			d.headLen = uint32(len(name))
			change(&d)
			p, _ := forger(r)
			if _, err := p.post(&d, name, nil); err != nil {
				t.Error(err)
			}
		}
	}
	for what, forge := range map[string]func(r *region){
		"kind":             with(func(d *desc) { d.kind = kinds }),
		"kind of a callee": with(func(d *desc) { d.kind = kindReply }),
		"no kind":          with(func(d *desc) { d.kind = 0 }),
		"head too long":    with(func(d *desc) { d.headLen = maxHead + 1 }),
		"head beyond slot": with(func(d *desc) { d.headLen = inlineSize + 1 }),
		"data beyond slot": with(func(d *desc) { d.dataLen = inlineSize }),
		"data beyond heap": with(func(d *desc) { d.data, d.dataLen = ref{unit: uint32(minHeap/unit) - 1}, unit+1 }),
		"unit overflows":   with(func(d *desc) { d.data, d.dataLen = ref{unit: inSlot - 1}, 1<<32-1 }),
		"unknown method":   with(func(d *desc) { d.flags = 0; d.headLen = 0 }),
		"huge number":      with(func(d *desc) { d.method = maxMethods }),
		"cut head":         with(func(d *desc) { d.headLen = 3 }),
		"no method name":   with(func(d *desc) { d.headLen = 0 }),
		"ring jumps": func(r *region) {
			sequence(r.slotsOf(0)).Store(7)
			r.bell(0).RingAlways()
		},
		"second end": func(r *region) {
			p, _ := forger(r)
			d := outside()
			d.kind, d.headLen = kindOpen, uint32(len(name))
			_, _ = p.post(&d, name, nil)
			for range 2 {
				d = outside()
				d.kind, d.flags = kindEnd, 0
				_, _ = p.post(&d, nil, nil)
			}
		},
		"same place twice": func(r *region) {
			p, _ := forger(r)
			for range 2 {
				d := outside()
				d.kind, d.headLen = kindOpen, uint32(len(name))
				_, _ = p.post(&d, name, nil)
			}
		},
		"no credit": func(r *region) {
			p, _ := forger(r)
			d := outside()
			d.kind, d.headLen = kindOpen, uint32(len(name))
			_, _ = p.post(&d, name, nil)
			for range 2 * window / overhead {
				d = outside()
				d.kind, d.flags = kindData, 0
				for ok, err := p.post(&d, nil, nil); !ok && err == nil; ok, err = p.post(&d, nil, nil) {
				}
			}
		},
		"a word on the socket": nil,
	} {
		t.Run(what, func(t *testing.T) {
			c, r, socket := against(t, acceptor, Options{Handler: sleeper{}, Heap: minHeap, Slots: 16})
			if forge == nil {
				socket.Write([]byte("x"))
			} else {
				done := make(chan bool)
				go func() { forge(r); close(done) }()
				defer func() { <-done }()
			}
			<-c.Done()
			if code := status.Code(c.Err()); code != codes.Unavailable || status.Convert(c.Err()).Message() == "the peer is gone" {
				t.Errorf("ended with %v", c.Err())
			}
			r.word(0, offConsumed).Store(1 << 20) // the forger may wait for room
		})
	}
}

// sleeper reads nothing.
type sleeper struct{}

func (sleeper) Serve(s call.ServerStream) error {
	<-s.Context().Done()
	return s.Context().Err()
}

// TestForgedReturns gives back what was never lent, or not to us, or twice.
func TestForgedReturns(t *testing.T) {
	for what, forge := range map[string]func(b *peerHeap, real ref){
		"never lent":     func(b *peerHeap, real ref) { b.free(ref{unit: real.unit + 1, gen: 1}) },
		"outside":        func(b *peerHeap, _ ref) { b.free(ref{unit: 1 << 30}) },
		"old generation": func(b *peerHeap, real ref) { b.free(ref{unit: real.unit, gen: real.gen - 1}) },
		"twice":          func(b *peerHeap, real ref) { b.free(real); b.free(real) },
		"too many":       func(b *peerHeap, _ ref) { b.words.returned.Store(1 << 30) },
	} {
		t.Run(what, func(t *testing.T) {
			c, r, _ := against(t, dialler, Options{Heap: minHeap, Slots: 16})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 1)
			go func() {
				_, _, err := c.Unary(ctx, &call.Head{Method: "/a.B/C"}, &call.Message{Data: make([]byte, unit)})
				ended <- err
			}()
			in := newConsumer(r, 0)
			var d desc
			for slot, err := in.next(&d); slot == nil; slot, err = in.next(&d) {
				if err != nil {
					t.Fatal(err)
				}
			}
			forge(newPeerHeap(r, 0), d.data)
			if _, err := c.Lend(unit); err == nil && c.Err() == nil {
				t.Error("the forged return was believed")
			}
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Errorf("the call ended with %v", err)
			}
		})
	}
}

func TestRegionMustBeSealed(t *testing.T) {
	g := geometry{heap: minHeap, slots: minSlots}
	for what, make_ := range map[string]func(f *os.File) error{
		"no seals": func(f *os.File) error { return f.Truncate(int64(g.size())) },
		"can grow": func(f *os.File) error { return errors.Join(f.Truncate(int64(g.size())), seal(f, unix.F_SEAL_SHRINK)) },
		"can shrink": func(f *os.File) error {
			return errors.Join(f.Truncate(int64(g.size())), seal(f, unix.F_SEAL_GROW))
		},
		"shorter": func(f *os.File) error {
			return errors.Join(f.Truncate(int64(g.size())-pageSize), seal(f, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW))
		},
		"read only": func(f *os.File) error {
			return errors.Join(f.Truncate(int64(g.size())), seal(f, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_WRITE))
		},
	} {
		fd, err := unix.MemfdCreate("t", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "t")
		if err := make_(f); err != nil {
			t.Fatal(err)
		}
		if r, err := openRegion(f, g); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: got %v, %v", what, r, err)
		}
		f.Close()
	}
}

func seal(f *os.File, seals int) error {
	_, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
	return err
}

// FuzzDescriptors posts what it likes to a side that listens and to one that
// dialled, both with calls of their own under way. Nothing may panic, hang, or keep
// memory.
func FuzzDescriptors(f *testing.F) {
	d := outside()
	name := appendString(nil, "/a.B/C")
	d.headLen = uint32(len(name))
	var slot [slotSize]byte
	d.put(unsafe.Pointer(&slot))
	copy(slot[descSize:], name)
	f.Add(slot[4:descSize+16], false)
	for k := kindOpen; k < kinds; k++ {
		slot[4] = byte(k)
		f.Add(slot[4:descSize+16], k >= kindCredit)
	}
	f.Fuzz(func(t *testing.T, script []byte, toDialler bool) {
		s := acceptor
		if toDialler {
			s = dialler
		}
		c, r, _ := against(t, s, Options{Handler: parrot{}, Inline: true, Heap: minHeap, Slots: 8})
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		defer wg.Wait()
		defer cancel()
		wg.Go(func() {
			m, _, _ := c.Unary(ctx, &call.Head{Method: "/a.B/C"}, &call.Message{Data: make([]byte, unit)})
			m.Free()
		})
		wg.Go(func() {
			s, err := c.Open(ctx, &call.Head{Method: "/a.B/D", Streaming: true})
			for err == nil {
				var m *call.Message
				m, err = s.Recv()
				m.Free()
			}
		})
		for lane := range 2 { // the lane of the peer's own calls, then that of ours
			p := newProducer(r, 2*lane+(lane^int(s)^1))
			for rest := script; len(rest) > 0; rest = rest[min(len(rest), descSize+16):] {
				var slot [slotSize]byte
				copy(slot[4:descSize+16], rest)
				var d desc
				d.get(unsafe.Pointer(&slot))
				_, _ = p.post(&d, slot[descSize:], nil)
			}
		}
	})
}

// FuzzScribble writes anywhere while calls run.
func FuzzScribble(f *testing.F) {
	word := func(at uint32, value uint32) []byte {
		return binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, at), value)
	}
	for direction := range uint32(4) {
		for _, at := range []uint32{offConsumed, offWant, offBell, offSleeper, offReturned} {
			f.Add(word(direction*sizeWords+at, 1<<31))
		}
	}
	f.Add(word(pageSize, 9))
	f.Fuzz(func(t *testing.T, script []byte) {
		o := Options{Handler: parrot{}, Inline: true, Heap: minHeap, Slots: 8}
		c, r, socket := against(t, dialler, o)
		o.setDefaults()
		fd, err := unix.Dup(int(r.file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		peer, err := newConnOn(socket, os.NewFile(uintptr(fd), "peer"), acceptor, hello{serves: true, geometry: r.geometry}, &o)
		if err != nil {
			t.Fatal(err)
		}
		peer.start()
		defer peer.Close()
		var wg sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		defer wg.Wait()
		defer cancel()
		for _, end := range []*Conn{c, peer} {
			wg.Go(func() {
				for range 20 {
					m, _, err := end.Unary(ctx, &call.Head{Method: "/a.B/C"}, &call.Message{Data: make([]byte, 3000)})
					if m.Free(); err != nil {
						return
					}
				}
			})
		}
		all := unsafe.Slice((*byte)(r.base), r.size())
		for ; len(script) >= 8; script = script[8:] {
			at := int(binary.LittleEndian.Uint32(script)) % (r.size() - 4)
			copy(all[at:at+4], script[4:8])
			for direction := range 4 {
				r.bell(direction).RingAlways()
			}
		}
	})
}
