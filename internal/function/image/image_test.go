package image

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/need"
)

// sparse returns memory of which every third page is not zero.
func sparse(pages int) []byte {
	b := make([]byte, pages*PageSize)
	for i := 0; i < pages; i += 3 {
		copy(b[i*PageSize:], bytes.Repeat([]byte{byte(i + 1)}, 100))
	}
	return b
}

func newImage(t testing.TB, memory []byte) *Image {
	t.Helper()
	i, err := New(memory, Window{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.Close() })
	return i
}

func take(t testing.TB, p *Pool, size int, i *Image) *Range {
	t.Helper()
	r, err := p.Acquire(size)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(i); err != nil {
		t.Fatal(err)
	}
	return r
}

func resetters(t *testing.T) map[string]*Resetter {
	all := make(map[string]*Resetter)
	for name, keep := range map[string]int{"scan": 0, "scan, two pages": 2 * PageSize} {
		r, _, err := NewResetter(Scan, keep)
		if err != nil {
			t.Log(err)
			continue
		}
		all[name] = r
	}
	all["drop"], _, _ = NewResetter(Drop, 0)
	for _, r := range all {
		t.Cleanup(func() { _ = r.Close() })
	}
	return all
}

// TestReset writes to random pages, within the image and above it.
func TestReset(t *testing.T) {
	const pages, above = 20, 10
	want := append(sparse(pages), make([]byte, above*PageSize)...)
	i := newImage(t, want[:pages*PageSize])
	for name, r := range resetters(t) {
		t.Run(name, func(t *testing.T) {
			var p Pool
			defer p.Close()
			g := take(t, &p, len(want), i)
			defer g.Release()
			rapid.Check(t, func(t *rapid.T) {
				for range rapid.IntRange(0, 30).Draw(t, "writes") {
					at := rapid.IntRange(0, len(want)-1).Draw(t, "at")
					end := min(at+rapid.IntRange(0, 3*PageSize).Draw(t, "size"), len(want))
					for n := at; n < end; n++ {
						g.Bytes()[n] ^= 0x5a
					}
				}
				if _, err := r.Reset(g, len(want), false); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(g.Bytes(), want) {
					t.Fatal("the range is not the image and zero above it")
				}
			})
		})
	}
}

// TestStats checks that a reset restores the written pages only.
func TestStats(t *testing.T) {
	r, _, err := NewResetter(Scan, 2*PageSize)
	need.Require(t, "pagemap_scan", err == nil, "a kernel from Linux 6.7 on has it")
	defer r.Close()
	var p Pool
	defer p.Close()
	i := newImage(t, sparse(10))
	g := take(t, &p, 20*PageSize, i)
	defer g.Release()
	for _, page := range []int{0, 4, 7, 15} {
		g.Bytes()[page*PageSize] = 0xff
	}
	got, err := r.Reset(g, 20*PageSize, false)
	if want := (Stats{Copied: 2 * PageSize, Dropped: 2 * PageSize}); err != nil || got != want {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

// TestApart loads one image into two ranges.
func TestApart(t *testing.T) {
	var p Pool
	defer p.Close()
	want := sparse(4)
	i := newImage(t, want)
	a, b := take(t, &p, 8*PageSize, i), take(t, &p, 8*PageSize, i)
	a.Bytes()[0] = 99
	if !bytes.Equal(b.Bytes()[:len(want)], want) || !bytes.Equal(i.Bytes(), want) {
		t.Error("a write to one range shows elsewhere")
	}
	a.Release()
	again, err := p.Acquire(8 * PageSize)
	if err != nil {
		t.Fatal(err)
	}
	if again != a {
		t.Error("the pool did not give the released range out again")
	}
	if !bytes.Equal(again.Bytes(), make([]byte, 8*PageSize)) {
		t.Error("a released range is not empty")
	}
	again.Release()
	b.Release()
}

// TestSealed checks that an image can't be changed.
func TestSealed(t *testing.T) {
	i := newImage(t, sparse(2))
	if err := i.file.Truncate(0); err == nil {
		t.Error("the image could be cut off")
	}
	if _, err := i.file.WriteAt([]byte{1}, 0); err == nil {
		t.Error("the image could be written to")
	}
	if _, err := unix.Mmap(int(i.file.Fd()), 0, PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("the image could be mapped for writing")
	}
}

func TestNothing(t *testing.T) {
	if _, err := New(make([]byte, 100), Window{}); err == nil {
		t.Error("an image of a part of a page")
	}
	var p Pool
	i := newImage(t, nil)
	g := take(t, &p, PageSize, i)
	if err := (&Range{base: make([]byte, PageSize)}).Load(newImage(t, sparse(2))); err == nil {
		t.Error("an image that is larger than its range")
	}
	for name, r := range resetters(t) {
		if _, err := r.Reset(g, 0, false); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	g.Release()
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}
