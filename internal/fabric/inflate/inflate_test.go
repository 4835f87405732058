package inflate

import (
	"bytes"
	"compress/gzip"
	"errors"
	"strings"
	"testing"
)

// A fixed budget has a limit.
type fixed struct{ limit, held, most int64 }

var errFull = errors.New("the budget is used up")

func (f *fixed) Reserve(n int64) error {
	if f.held+n > f.limit {
		return errFull
	}
	f.held += n
	f.most = max(f.most, f.held)
	return nil
}

func (f *fixed) Release(n int64) { f.held -= n }

// zipped returns n zeros, compressed.
func zipped(t *testing.T, n int) *bytes.Reader {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return bytes.NewReader(b.Bytes())
}

// Messages are reserved until they are taken, once.
func TestMessagesAreReserved(t *testing.T) {
	b := &fixed{limit: 1 << 30}
	d := New(b, 1<<20)
	for _, n := range []int{0, 1, firstSize, firstSize + 1, 1 << 20} {
		data, err := d.Do(zipped(t, n))
		if err != nil || len(data) != n {
			t.Fatalf("%d bytes: %d, %v", n, len(data), err)
		}
		if b.held < int64(n) {
			t.Errorf("%d bytes are held for %d", b.held, n)
		}
		if taken(d, []byte("another message")) || !taken(d, data) || taken(d, data) || b.held != 0 {
			t.Errorf("%d bytes: %d are held afterwards", n, b.held)
		}
	}
}

// A message that is too long, or for which there is no memory, is refused before it has taken it.
func TestMessagesAreBounded(t *testing.T) {
	long := &fixed{limit: 1 << 30}
	if data, err := New(long, 1<<20).Do(zipped(t, 1<<24)); err != nil || len(data) != 1<<20+1 || long.held != 0 || long.most > 4<<20 {
		t.Errorf("a long message: %d bytes, %v, with %d, and %d are held", len(data), err, long.most, long.held)
	}
	full := &fixed{limit: 1 << 20}
	if _, err := New(full, 1<<30).Do(zipped(t, 1<<24)); !errors.Is(err, errFull) || full.held != 0 {
		t.Errorf("without memory: %v, %d bytes are held", err, full.held)
	}
}

// What is no gzip is refused, and nothing remains reserved.
func TestBrokenMessages(t *testing.T) {
	b := &fixed{limit: 1 << 30}
	d := New(b, 1<<20)
	for name, text := range map[string]string{"empty": "", "no gzip": "text", "cut": "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x4a"} {
		if _, err := d.Do(strings.NewReader(text)); err == nil {
			t.Errorf("%s: it was decompressed", name)
		}
	}
	if b.held != 0 || len(d.sizes) != 0 {
		t.Errorf("%d bytes are held by %d messages", b.held, len(d.sizes))
	}
}

// taken reports whether a message was compressed.
func taken(d *Decompressor, data []byte) bool {
	_, ok := d.Take(data)
	return ok
}

func FuzzDo(f *testing.F) {
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\x01\x00\x00\xff\xff\x00\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		b := &fixed{limit: 1 << 20}
		d := New(b, 1<<20)
		if data, err := d.Do(bytes.NewReader(text)); err == nil && len(data) <= 1<<20 && !taken(d, data) {
			t.Error("the message is not known")
		}
		if b.held != 0 {
			t.Errorf("%d bytes are held", b.held)
		}
	})
}
