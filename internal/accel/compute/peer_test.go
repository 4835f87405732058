package compute

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// peer stands for a worker.
type peer struct {
	ring *shm.Ring
	in   *session.Reader
	out  *session.Writer
}

// snapshot says that there is a device about which nothing is known.
func snapshot() []byte {
	var e wire.Encoder
	e.U64(0)
	e.Bytes([]byte{})
	return e.Body()
}

// against begins a session with a peer.
func against(t testing.TB, opts Options) (*Device, *peer) {
	t.Helper()
	near, far := pair(t, 1<<16)
	p := &peer{ring: far, out: session.NewWriter(far, far.Area())}
	var err error
	if p.in, err = session.NewReader(far, far.Area()); err != nil {
		t.Fatal(err)
	}
	if err := p.out.Send(session.Header{Op: opSnapshot}, snapshot()); err != nil {
		t.Fatal(err)
	}
	opts.Ring = near
	d, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Close(), p.in.Close()); err != nil {
			t.Error(err)
		}
		near.Unmap()
		far.Unmap()
	})
	return d, p
}

// until takes messages up to one of an op.
func (p *peer) until(t testing.TB, op uint16) session.Header {
	t.Helper()
	for {
		h, _, err := p.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Op == op {
			return h
		}
	}
}

var errEnough = errors.New("enough")

// Who gives up gets his answer although the device does not answer, and nothing is
// written to his memory afterwards.
func TestGivingUp(t *testing.T) {
	for name, l := range map[string]*list{
		"a read":   new(list).buffer(1, 64).readTo(1, 0, 0, 64),
		"the end":  new(list).buffer(1, 64),
		"a build":  new(list).program(1, source, ""),
		"two":      new(list).buffer(1, 64).readTo(1, 0, 0, 64).readTo(1, 0, 0, 64),
		"a result": new(list).buffer(1, 64).read(1, 0, 64),
	} {
		t.Run(name, func(t *testing.T) {
			d, p := against(t, Options{Shared: true})
			h, other := holder(t, d), holder(t, d)
			ctx, cancel := context.WithCancelCause(t.Context())
			memory, done := make([]byte, 64), make(chan error, 1)
			go func() {
				_, err := h.Do(ctx, *l, memoryOf(memory))
				done <- err
			}()
			asked := p.untilAsked(t)
			if err := p.out.Send(session.Header{Op: asked.Op, Flags: session.IsReply | session.More, Call: asked.Call}, nil, []byte("first half")); err != nil {
				t.Fatal(err)
			}
			cancel(errEnough)
			if err := <-done; !errors.Is(err, errEnough) {
				t.Errorf("got %v, want %v", err, errEnough)
			}
			before := string(memory)
			if err := p.out.Send(session.Header{Op: asked.Op, Flags: session.IsReply, Call: asked.Call}, nil, make([]byte, 54)); err != nil {
				t.Fatal(err)
			}
			if _, err := h.Do(t.Context(), *new(list).buffer(2, 4), nil); !errors.Is(err, ErrGivenUp) {
				t.Errorf("got %v, want %v", err, ErrGivenUp)
			}
			// Somebody else goes on; his reply comes after that one.
			go func() {
				_, err := other.Do(t.Context(), *new(list).buffer(1, 4), nil)
				done <- err
			}()
			finish := p.until(t, opClFinish)
			if err := p.out.Send(session.Header{Op: opClFinish, Flags: session.IsReply, Call: finish.Call}, nil); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
			if string(memory) != before {
				t.Error("the memory was written to")
			}
			if !d.Stuck() {
				t.Error("the session counts as good")
			}
		})
	}
}

// untilAsked takes messages up to one that wants a reply.
func (p *peer) untilAsked(t testing.TB) session.Header {
	t.Helper()
	for {
		h, _, err := p.in.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Flags&session.WantReply != 0 {
			return h
		}
	}
}

// A message that finds no room does not keep who gives up.
func TestStall(t *testing.T) {
	d, p := against(t, Options{Shared: true})
	h, other := holder(t, d), holder(t, d)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := h.Do(ctx, *new(list).buffer(1, 1<<20).writeFrom(1, 0, 0, 1<<20), memoryOf(make([]byte, 1<<20)))
		done <- err
	}()
	p.until(t, opClEnqueueWriteBuffer)
	cancel(errEnough)
	if err := <-done; !errors.Is(err, errEnough) {
		t.Errorf("got %v, want %v", err, errEnough)
	}
	<-d.Done()
	if _, err := other.Do(t.Context(), *new(list).buffer(1, 64), nil); !errors.Is(err, errStalled) {
		t.Errorf("got %v, want %v", err, errStalled)
	}
}

// A call that gives up late does not touch the ring of a session that was closed.
func TestStallAfterClose(t *testing.T) {
	near, far := pair(t, 1<<16)
	defer far.Unmap()
	out := session.NewWriter(far, far.Area())
	if err := out.Send(session.Header{Op: opSnapshot}, snapshot()); err != nil {
		t.Fatal(err)
	}
	d, err := Open(t.Context(), Options{Ring: near})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	near.Unmap()
	d.failStalled()
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// What no worker may say ends the session.
func TestBrokenPeer(t *testing.T) {
	tests := map[string]func(p *peer, asked session.Header) error{
		"a second snapshot": func(p *peer, _ session.Header) error { return p.out.Send(session.Header{Op: opSnapshot}, snapshot()) },
		"no snapshot": func(p *peer, _ session.Header) error {
			return p.out.Send(session.Header{Op: opSnapshot}, make([]byte, 8))
		},
		"no failure": func(p *peer, _ session.Header) error {
			return p.out.Send(session.Header{Op: opFailed}, make([]byte, 8))
		},
		"a reply to another": func(p *peer, h session.Header) error {
			return p.out.Send(session.Header{Op: opClBuildProgram, Flags: session.IsReply, Call: h.Call}, nil)
		},
		"less than was asked": func(p *peer, h session.Header) error {
			return p.out.Send(session.Header{Op: h.Op, Flags: session.IsReply, Call: h.Call}, nil, make([]byte, 3))
		},
	}
	for name, say := range tests {
		t.Run(name, func(t *testing.T) {
			d, p := against(t, Options{})
			h := holder(t, d)
			done := make(chan error, 1)
			go func() {
				_, err := h.Do(t.Context(), *new(list).buffer(1, 64).read(1, 0, 64), nil)
				done <- err
			}()
			if err := say(p, p.untilAsked(t)); err != nil && !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
			if err := <-done; outboard.KindOf(err) != outboard.Protocol {
				t.Errorf("got %v, want an error of the protocol", err)
			}
		})
	}
}

// output is a notice of what kernels printed.
func output(text string) []byte {
	var e wire.Encoder
	e.Bytes([]byte(text))
	return e.Body()
}

// What kernels print is heard by the lists under way, up to a bound, and by no later one.
func TestPrinted(t *testing.T) {
	d, p := against(t, Options{Shared: true})
	h := holder(t, d)
	for want, printed := range map[string][]string{
		"":                              nil,
		"one\ntwo\n":                    {"one\n", "two\n"},
		strings.Repeat("x", MaxPrinted): {strings.Repeat("x", MaxPrinted-1), "xx", "x"},
	} {
		done := make(chan Result, 1)
		go func() {
			r, err := h.Do(t.Context(), *new(list).buffer(1, 64).read(1, 0, 64).free(1), nil)
			if err != nil {
				t.Error(err)
			}
			done <- r
		}()
		asked := p.untilAsked(t)
		for _, text := range printed {
			if err := p.out.Send(session.Header{Op: opOutput}, output(text)); err != nil {
				t.Fatal(err)
			}
		}
		for asked.Op != opClFinish {
			if err := p.out.Send(session.Header{Op: asked.Op, Flags: session.IsReply, Call: asked.Call}, nil, make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			asked = p.untilAsked(t)
		}
		if err := p.out.Send(session.Header{Op: asked.Op, Flags: session.IsReply, Call: asked.Call}, nil); err != nil {
			t.Fatal(err)
		}
		if r := <-done; string(r.Printed) != want {
			t.Errorf("got %d bytes: %.20q, want %.20q", len(r.Printed), r.Printed, want)
		}
		if err := p.out.Send(session.Header{Op: opOutput}, output("late")); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzPeer has a worker say anything.
func FuzzPeer(f *testing.F) {
	f.Add(opFailed, uint16(0), int32(0), make([]byte, 48), []byte{})
	f.Add(opClEnqueueReadBuffer, session.IsReply, int32(0), []byte{}, make([]byte, 64))
	f.Add(opClEnqueueReadBuffer, session.IsReply|session.More, int32(-5), []byte{}, make([]byte, 100))
	f.Add(opClBuildProgram, session.IsReply, int32(-11), make([]byte, 64), []byte{})
	f.Add(opOutput, uint16(0), int32(0), output("hello"), []byte{})
	f.Add(opSnapshot, uint16(0), int32(0), snapshot(), []byte{})
	f.Fuzz(func(t *testing.T, op, flags uint16, status int32, body, bulk []byte) {
		d, p := against(t, Options{})
		h := holder(t, d)
		done := make(chan error, 1)
		memory := make([]byte, 80)
		go func() {
			_, err := h.Do(t.Context(), *new(list).buffer(1, 64).program(1, source, "").readTo(1, 0, 8, 64), memoryOf(memory))
			done <- err
		}()
		message := session.Header{Op: op, Flags: flags & (session.IsReply | session.More), Status: status, Call: p.untilAsked(t).Call}
		_ = p.out.Send(message, body[:len(body)/8*8], bulk) // the session may have ended over it
		_ = p.ring.Close(shm.Done)                          // nothing more comes
		<-done
		if !bytes.Equal(memory[:8], make([]byte, 8)) || !bytes.Equal(memory[72:], make([]byte, 8)) {
			t.Error("it wrote beyond the place")
		}
	})
}

func FuzzDecode(f *testing.F) {
	l := new(list).buffer(1, 64).write(1, 0, "hello").program(1, source, "-w").writeFrom(1, 0, 0, 8).readTo(1, 0, 0, 8)
	f.Add([]byte(*l.launch(1, "add", 16, 0, 3).mem(1).scalar("four").local(8).read(1, 0, 4).free(1)))
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		commands, err := Decode(b)
		if err != nil {
			return
		}
		for i := range commands {
			if c := &commands[i]; len(c.global) != len(c.local) || len(c.args) > maxArgs || c.op.String() == "" || len(c.bytes) > len(b) {
				t.Errorf("%+v", c)
			}
		}
	})
}

// A write that failed leaves nothing of the previous user of the memory.
func TestFailedWriteIsNoContent(t *testing.T) {
	d, p := against(t, Options{})
	h := holder(t, d)
	done := make(chan error, 1)
	start := func(l *list) {
		go func() {
			_, err := h.Do(t.Context(), *l, nil)
			done <- err
		}()
	}
	finish := func(size int) error {
		asked := p.untilAsked(t)
		if err := p.out.Send(session.Header{Op: asked.Op, Flags: session.IsReply, Call: asked.Call}, nil, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		return <-done
	}
	start(new(list).buffer(1, 4))
	if err := finish(0); err != nil {
		t.Fatal(err)
	}
	start(new(list).write(1, 0, "full"))
	var e wire.Encoder
	e.U64(p.until(t, opClEnqueueWriteBuffer).Serial)
	e.U64(uint64(opClEnqueueWriteBuffer))
	e.I64(-6)
	for range 3 {
		e.U64(0)
	}
	if err := p.out.Send(session.Header{Op: opFailed}, e.Body()); err != nil {
		t.Fatal(err)
	}
	if err := finish(0); !errors.Is(err, StatusError(-6)) {
		t.Fatalf("got %v, want what failed", err)
	}
	start(new(list).read(1, 0, 4))
	p.until(t, opClEnqueueFillBuffer)
	if err := finish(4); err != nil {
		t.Error(err)
	}
}

// A piece that comes while somebody gives up goes nowhere.
func TestAbandonedWait(t *testing.T) {
	near, far := pair(t, 1<<16)
	defer near.Unmap()
	defer far.Unmap()
	in, err := session.NewReader(near, near.Area())
	if err != nil {
		t.Fatal(err)
	}
	if err := session.NewWriter(far, far.Area()).Send(session.Header{Op: opClEnqueueReadBuffer}, nil, []byte("late")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := in.Next(); err != nil {
		t.Fatal(err)
	}
	memory := make([]byte, 4)
	w := &wait{to: memory}
	w.abandon()
	if err := errors.Join(w.fill(in), in.Close()); err != nil || string(memory) != "\x00\x00\x00\x00" {
		t.Errorf("%q, %v", memory, err)
	}
}
