package session

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
)

type sent struct {
	Header Header
	Body   []byte
	Bulk   []byte
}

// TestRoundTrip sends messages of all sizes through rings of all sizes, whole
// and streamed, and wants them back.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		area := 1 << rapid.IntRange(12, 18).Draw(t, "area")
		size := rapid.OneOf(rapid.IntRange(0, 8), rapid.IntRange(0, area/8), rapid.IntRange(0, area/3))
		var messages []sent
		for range rapid.IntRange(1, 8).Draw(t, "messages") {
			messages = append(messages, sent{
				Header: Header{Op: rapid.Uint16().Draw(t, "op"), Status: rapid.Int32().Draw(t, "status"), Flags: IsReply},
				Body:   pattern(8 * size.Draw(t, "body")),
				Bulk:   pattern(size.Draw(t, "bulk")),
			})
		}
		streamed := rapid.Bool().Draw(t, "streamed")
		taken := rapid.Bool().Draw(t, "taken")
		ring := newTestRing(area)
		failed := make(chan error, 1)
		go func() { failed <- send(NewWriter(ring, area), messages, streamed) }()
		got, err := receive(ring, len(messages), taken)
		if err != nil {
			ring.close()
		}
		if err := errors.Join(err, <-failed); err != nil {
			t.Fatal(err)
		}
		for i := range messages {
			want := &messages[i]
			want.Header.Size = uint32(HeaderSize + len(want.Body))
			want.Header.Bulk, want.Header.Serial = uint64(len(want.Bulk)), uint64(i+1)
			if !taken {
				want.Bulk = nil
			}
		}
		if diff := cmp.Diff(got, messages, cmp.Comparer(bytes.Equal)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func send(w *Writer, messages []sent, streamed bool) error {
	for _, m := range messages {
		if !streamed || len(m.Bulk) == 0 || len(m.Body)+HeaderSize+len(m.Bulk) > w.area/2 {
			if err := w.Send(m.Header, m.Body, m.Bulk); err != nil {
				return err
			}
			continue
		}
		err := w.Piece(m.Header, m.Body, len(m.Bulk), func(piece []byte) error {
			copy(piece, m.Bulk)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func receive(src Source, count int, taken bool) ([]sent, error) {
	ring := src.(*testRing)
	r, err := NewReader(ring, ring.area)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var got []sent
	for range count {
		h, body, err := r.Next()
		if err != nil {
			return nil, err
		}
		m := sent{Header: h}
		if taken {
			if m.Bulk, err = takeBulk(r); err != nil {
				return nil, err
			}
		}
		m.Body = bytes.Clone(body) // still whole after the bulk went by
		got = append(got, m)
	}
	return got, nil
}

func takeBulk(r *Reader) ([]byte, error) {
	var all []byte
	for {
		p, err := r.NextBulk()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p...)
	}
}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + n)
	}
	return b
}

func TestReaderRefuses(t *testing.T) {
	valid := Header{Size: HeaderSize, Serial: 1}
	tests := map[string]func(h *Header){
		"size below a header":   func(h *Header) { h.Size = 24 },
		"size not of words":     func(h *Header) { h.Size = 36 },
		"absurd size":           func(h *Header) { h.Size = MaxSize + 8 },
		"serial out of order":   func(h *Header) { h.Serial = 2 },
		"serial again":          func(h *Header) { h.Serial = 0 },
		"absurd bulk":           func(h *Header) { h.Bulk = MaxBulk + 1 },
		"unknown flag":          func(h *Header) { h.Flags = 16 },
		"reply to no call wish": func(h *Header) { h.Flags = WantReply },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			h := valid
			change(&h)
			raw := make([]byte, HeaderSize)
			h.put(raw)
			r, err := NewReader(&fixedSource{raw}, 1<<12)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if _, _, err := r.Next(); outboard.KindOf(err) != outboard.Protocol {
				t.Errorf("Next: %v, want a protocol error", err)
			}
		})
	}
}

// TestClaimedSizeIsNotAllocated: a header that claims the largest body and
// brings nothing costs no memory.
func TestClaimedSizeIsNotAllocated(t *testing.T) {
	h := Header{Size: MaxSize, Serial: 1}
	raw := make([]byte, HeaderSize+8)
	h.put(raw)
	r, err := NewReader(&fixedSource{raw}, 1<<12)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, err := r.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatalf("Next: %v", err)
	}
	if len(r.large) > 1<<12 {
		t.Errorf("%d bytes were mapped for a body that never came", len(r.large))
	}
}

// TestPieceFails: of a piece that fails nothing is sent, and others may follow.
func TestPieceFails(t *testing.T) {
	const area = 1 << 12
	broken := errors.New("broken")
	ring := newTestRing(area)
	done := make(chan error, 1)
	go func() {
		w := NewWriter(ring, area)
		err := w.Piece(Header{Op: 1, Flags: More}, nil, 100, func([]byte) error { return nil })
		if failed := w.Piece(Header{Op: 1}, nil, 100, func([]byte) error { return broken }); !errors.Is(failed, broken) {
			err = errors.Join(err, fmt.Errorf("want the piece's own error: %w", failed))
		}
		if w.Piece(Header{Op: 1}, nil, area, func([]byte) error { return nil }) == nil {
			err = errors.Join(err, errors.New("a piece as large as the area was taken"))
		}
		done <- errors.Join(err, w.Send(Header{Op: 1, Status: -5}, nil))
	}()
	got, err := receive(ring, 2, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(got[0].Bulk) != 100 || got[0].Header.Flags != More || len(got[1].Bulk) != 0 || got[1].Header.Status != -5 {
		t.Errorf("got %+v", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestWriterBreaks: a message that may be cut is the last one.
func TestWriterBreaks(t *testing.T) {
	for name, send := range map[string]func(*Writer) error{
		"small":  func(w *Writer) error { return w.Send(Header{Op: 1}, pattern(8)) },
		"copied": func(w *Writer) error { return w.Send(Header{Op: 1}, pattern(4096)) },
		"piece":  func(w *Writer) error { return w.Piece(Header{Op: 1}, nil, 8, func([]byte) error { return nil }) },
	} {
		ring := newTestRing(4096)
		w := NewWriter(ring, 4096)
		ring.close()
		if err := send(w); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: got %v, want %v", name, err, io.ErrClosedPipe)
		}
		ring.mu.Lock()
		ring.closed = false
		ring.mu.Unlock()
		if err := w.Send(Header{Op: 1}, nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s: the next message: %v, want that nothing follows", name, err)
		}
	}
}

// TestOnReply reports the last message of each reply, and the Reader where it began.
func TestOnReply(t *testing.T) {
	ring := newTestRing(4096)
	w := NewWriter(ring, 4096)
	var calls []uint32
	w.OnReply(func(call uint32) { calls = append(calls, call) })
	for _, h := range []Header{{Call: 1, Flags: WantReply}, {Call: 2, Flags: IsReply | More}, {Call: 2, Flags: IsReply}, {Call: 3, Flags: IsReply}} {
		if err := w.Send(h, nil, pattern(8)); err != nil {
			t.Fatal(err)
		}
	}
	w.OnReply(nil)
	if err := w.Send(Header{Call: 4, Flags: IsReply}, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(calls, []uint32{2, 3}); diff != "" {
		t.Errorf("replies that were reported (-got +want):\n%s", diff)
	}
	r, err := NewReader(ring, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := range 5 {
		if _, _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
		if want := uint64(i * (HeaderSize + 8)); r.Position() != want {
			t.Errorf("message %d begins at %d, want %d", i, r.Position(), want)
		}
	}
	if r.Bytes() != w.Bytes() || w.Bytes() != 5*HeaderSize+4*8 || r.Waited() != 0 {
		t.Errorf("%d bytes were sent, %d received; waited %v for bulk that was there", w.Bytes(), r.Bytes(), r.Waited())
	}
}

func TestBulkUnits(t *testing.T) {
	const area = 1 << 13
	ring := newTestRing(area)
	go func() { _ = NewWriter(ring, area).Send(Header{}, nil, pattern(10*1000+7)) }()
	r, err := NewReader(ring, area)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	for r.BulkLeft() > 0 {
		p, err := r.NextBulkOf(1000)
		if err != nil {
			t.Fatal(err)
		}
		if len(p)%1000 != 0 && r.BulkLeft() > 0 {
			t.Errorf("piece of %d bytes with %d left", len(p), r.BulkLeft())
		}
	}
}

func TestIdle(t *testing.T) {
	ring := newTestRing(1 << 12)
	w := NewWriter(ring, ring.area)
	r, err := NewReader(ring, ring.area)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if !r.Idle() {
		t.Error("not idle on an empty ring")
	}
	if err := w.Send(Header{}, nil); err != nil {
		t.Fatal(err)
	}
	if r.Idle() {
		t.Error("idle with a message in the ring")
	}
}

func FuzzReader(f *testing.F) {
	ring := newTestRing(1 << 16)
	w := NewWriter(ring, ring.area)
	for _, m := range []sent{{Body: pattern(64)}, {Bulk: pattern(77)}, {Body: pattern(4096), Bulk: pattern(3)}} {
		if err := w.Send(m.Header, m.Body, m.Bulk); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(bytes.Clone(ring.data), true)
	f.Add(bytes.Clone(ring.data[:100]), false)
	f.Fuzz(func(t *testing.T, data []byte, take bool) {
		size := len(data)
		r, err := NewReader(&fixedSource{bytes.Clone(data)}, 1<<12)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		got := 0
		for {
			h, body, err := r.Next()
			if err != nil {
				return
			}
			if int(h.Size) != HeaderSize+len(body) {
				t.Fatalf("body of %d bytes for size %d", len(body), h.Size)
			}
			got += int(h.Size)
			if take {
				bulk, err := takeBulk(r)
				if err == nil && uint64(len(bulk)) != h.Bulk {
					t.Fatalf("%d bulk bytes of %d", len(bulk), h.Bulk)
				}
				got += len(bulk)
			}
			if got > size {
				t.Fatalf("%d bytes out of %d", got, size)
			}
		}
	})
}

func FuzzWriter(f *testing.F) {
	f.Add([]byte("abc"), uint16(3), uint16(900), true)
	f.Add([]byte{}, uint16(0), uint16(0), false)
	f.Fuzz(func(t *testing.T, seed []byte, words, bulk uint16, streamed bool) {
		const area = 1 << 12
		m := sent{Body: make([]byte, 8*int(words%2048)), Bulk: make([]byte, bulk)}
		copy(m.Body, seed)
		copy(m.Bulk, seed)
		ring := newTestRing(area)
		failed := make(chan error, 1)
		go func() { failed <- send(NewWriter(ring, area), []sent{m, m}, streamed) }()
		got, err := receive(ring, 2, true)
		if err != nil {
			ring.close()
		}
		if err := errors.Join(err, <-failed); err != nil {
			t.Fatal(err)
		}
		for _, g := range got {
			if !bytes.Equal(g.Body, m.Body) || !bytes.Equal(g.Bulk, m.Bulk) {
				t.Fatal("message changed on its way")
			}
		}
	})
}
