package image

import (
	"bytes"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/need"
)

// TestQuiet writes under a Watch, mostly to pages that are private already: then a reset
// skips the scan.
func TestQuiet(t *testing.T) {
	const pages, above = 20, 4
	want := append(sparse(pages), make([]byte, above*PageSize)...)
	i := newImage(t, want[:pages*PageSize])
	quiet := 0
	for name, r := range resetters(t) {
		t.Run(name, func(t *testing.T) {
			var p Pool
			defer p.Close()
			g := take(t, &p, len(want), i)
			defer g.Release()
			rapid.Check(t, func(t *rapid.T) {
				var w Watch
				at := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(0, 3*PageSize), rapid.IntRange(0, len(want)-1)), 0, 5).Draw(t, "at")
				w.Begin()
				for _, n := range at {
					g.Bytes()[n] ^= 0x5a
				}
				calm := w.End()
				if calm {
					quiet++
				}
				if _, err := r.Reset(g, len(want), calm); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(g.Bytes(), want) {
					t.Fatalf("quiet=%v: the range is not the image and zero above it", calm)
				}
			})
		})
	}
	if quiet == 0 {
		t.Error("no reset was quiet, so the test checked nothing")
	}
}

// TestWatch checks End after a page fault, after none, and after Leave.
func TestWatch(t *testing.T) {
	r, _, err := NewResetter(Scan, 0)
	need.Require(t, "pagemap_scan", err == nil, "a kernel from Linux 6.7 on has it")
	defer r.Close()
	if !r.counts {
		t.Fatal("the kernel does not count page faults by thread")
	}
	var p Pool
	defer p.Close()
	g := take(t, &p, 64*PageSize, newImage(t, sparse(4)))
	defer g.Release()
	tests := map[string]struct {
		act  func(w *Watch)
		want bool
	}{
		"nothing":     {func(*Watch) {}, true},
		"new page":    {func(*Watch) { g.Bytes()[10*PageSize] = 1 }, false},
		"same page":   {func(*Watch) { g.Bytes()[10*PageSize] = 2 }, true},
		"left":        {func(w *Watch) { w.Leave() }, false},
		"left twice":  {func(w *Watch) { w.Leave(); w.Leave() }, false},
		"read a page": {func(*Watch) { _ = bytes.Equal(g.Bytes()[40*PageSize:41*PageSize], nil); touch(g.Bytes()[40*PageSize:]) }, false},
		"another thread's": {func(*Watch) {
			var other sync.WaitGroup
			other.Go(func() { touch(g.Bytes()[50*PageSize:]) })
			other.Wait()
		}, true},
	}
	for _, name := range []string{"nothing", "new page", "same page", "left", "left twice", "read a page", "another thread's"} {
		ok := false
		for range 10 { // the runtime's own faults may come in between
			var w Watch
			w.Begin()
			tests[name].act(&w)
			if ok = w.End() == tests[name].want; ok {
				break
			}
			if !tests[name].want {
				break
			}
		}
		if !ok {
			t.Errorf("%s: want %v", name, tests[name].want)
		}
		if w := (Watch{}); w.End() {
			t.Error("a watch that was not begun saw no fault")
		}
	}
}

var sink byte

func touch(b []byte) { sink += b[0] }

// TestSweep checks that pages that were written only once are released.
func TestSweep(t *testing.T) {
	r, _, err := NewResetter(Scan, 0)
	need.Require(t, "pagemap_scan", err == nil, "a kernel from Linux 6.7 on has it")
	defer r.Close()
	var p Pool
	defer p.Close()
	g := take(t, &p, 64*PageSize, newImage(t, sparse(64)))
	defer g.Release()
	for page := range 50 {
		g.Bytes()[page*PageSize] = 0xff
	}
	dropped := 0
	for range 2 * sweepEvery {
		done, err := r.Reset(g, 64*PageSize, false)
		if err != nil {
			t.Fatal(err)
		}
		dropped += done.Dropped
		g.Bytes()[7*PageSize] = 0xff
	}
	if dropped != 49*PageSize {
		t.Errorf("%d bytes were dropped, 49 pages were not written again", dropped)
	}
	if n := g.Private(); n != PageSize {
		t.Errorf("%d bytes are private, one page was written to", n)
	}
}

// TestMapped keeps shared and private mappings in a window across resets.
func TestMapped(t *testing.T) {
	w := Window{From: 4 * PageSize, To: 12 * PageSize}
	memory := sparse(16)
	clear(memory[w.From:w.To])
	i, err := New(memory, w)
	if err != nil {
		t.Fatal(err)
	}
	defer i.Close()
	file := newImage(t, sparse(4)).file // sealed against writing: it can be mapped privately only
	for name, r := range resetters(t) {
		t.Run(name, func(t *testing.T) {
			var p Pool
			defer p.Close()
			g := take(t, &p, 20*PageSize, i)
			defer g.Release()
			if err := g.Map(2*PageSize, 4*PageSize, file, true); err == nil {
				t.Error("a sealed file was mapped for writing")
			}
			for _, at := range []int{-PageSize, 1, 5 * PageSize} {
				if err := g.Map(at, 4*PageSize, file, false); err == nil {
					t.Errorf("mapped at %d", at)
				}
			}
			if err := g.Map(2*PageSize, 4*PageSize, file, false); err != nil {
				t.Fatal(err)
			}
			if err := g.Map(0, 3*PageSize, file, false); err == nil {
				t.Error("mapped twice")
			}
			want := append(bytes.Clone(memory), make([]byte, 4*PageSize)...)
			copy(want[w.From+2*PageSize:], sparse(4))
			for range 3 {
				for at := range len(want) {
					g.Bytes()[at]++
				}
				if _, err := r.Reset(g, len(want), false); err != nil || !bytes.Equal(g.Bytes(), want) {
					t.Fatalf("not as it was: %v", err)
				}
			}
			if err := g.Unmap(2 * PageSize); err != nil || g.Unmap(2*PageSize) == nil {
				t.Errorf("unmap: %v", err)
			}
			if !bytes.Equal(g.Bytes()[:16*PageSize], memory) {
				t.Error("not empty after unmapping")
			}
		})
	}
	for _, w := range []Window{{-PageSize, 0}, {1, PageSize}, {PageSize, 0}, {0, 17 * PageSize}} {
		if _, err := New(memory, w); err == nil {
			t.Errorf("a window %v", w)
		}
	}
}
