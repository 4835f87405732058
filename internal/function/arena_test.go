package function

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/quota"
)

// TestRoom gives places out and takes them back; none may lie in another.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size = 4096
		r := newFreeList(size)
		var owner [size]int
		given := make(map[int]Extent)
		for n := 1; n < 60; n++ {
			if len(given) > 0 && rapid.Bool().Draw(t, "give") {
				which := rapid.SampledFrom(keys(given)).Draw(t, "which")
				for i := range aligned(given[which].Size) {
					owner[given[which].Offset+i] = 0
				}
				r.release(given[which])
				delete(given, which)
				continue
			}
			p := Extent{Size: rapid.IntRange(0, 1000).Draw(t, "size")}
			at, ok := r.allocate(p.Size)
			if !ok {
				continue
			}
			p.Offset = at
			for i := range aligned(p.Size) {
				if at%arenaAlign != 0 || owner[at+i] != 0 {
					t.Fatalf("%d bytes at %d: not aligned, or not free", p.Size, at)
				}
				owner[at+i] = n
			}
			given[n] = p
		}
		for _, p := range given {
			r.release(p)
		}
		if diff := cmp.Diff([]Extent{{0, size}}, r.free); diff != "" {
			t.Fatalf("after all was given back (-want +got):\n%s", diff)
		}
	})
}

func keys(m map[int]Extent) []int {
	var all []int
	for n := range 60 {
		if _, ok := m[n]; ok {
			all = append(all, n)
		}
	}
	return all
}

func TestArena(t *testing.T) {
	for _, size := range []uint64{0, 1 << 32} {
		if _, err := NewArena(outboard.Bytes(size)); err == nil {
			t.Errorf("an arena of %d bytes", size)
		}
	}
	a := newArena(t, 5000)
	if a.Size() != 2*image.PageSize {
		t.Errorf("size %d", a.Size())
	}
	p, err := a.Put([]byte("seals"))
	if got, _ := a.Slice(p); err != nil || string(got) != "seals" {
		t.Errorf("got %q, %v", got, err)
	}
	a.Free(p)
	again, ok := a.Alloc(5)
	if got, _ := a.Slice(again); !ok || again != p || !bytes.Equal(got, make([]byte, 5)) {
		t.Errorf("room that was given back holds %q at %v", got, again)
	}
	for _, p := range []Extent{{-1, 1}, {1, -1}, {0, 8193}, {8192, 1}, {1 << 62, 1 << 62}} {
		if _, err := a.Slice(p); err == nil {
			t.Errorf("%v lies within an arena of 8192", p)
		}
	}
	if _, err := a.Put(make([]byte, 9000)); outboard.KindOf(err) != outboard.Exhausted {
		t.Error("9000 bytes found room in 8192")
	}
	if err := a.file.Truncate(0); err == nil {
		t.Error("the arena could be cut off")
	}
}

// TestHolders closes an arena as often as it was held, while an instance still maps it.
func TestHolders(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	a := newArena(t, 8192)
	copy(a.Bytes(), "left")
	var s script
	s.do("load", puppetWindow)
	if got, _ := perform(t, f, &s, Request{Arena: a}); got[0] != int64(binary.LittleEndian.Uint32([]byte("left"))) {
		t.Fatalf("got %x", got)
	}
	if err := a.Retain(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil || string(a.Bytes()[:4]) != "left" {
		t.Fatalf("it ended with its first holder: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if a.Close() == nil || a.Retain() == nil {
		t.Error("an arena lives on without holders")
	}
	if window := f.idle[0].memory.space.Bytes()[puppetWindow:][:8192]; !isZero(window) {
		t.Error("what the arena held is still there")
	}
	if _, err := f.Call(t.Context(), Request{Arena: a}); err == nil {
		t.Error("a call got an arena that was given back")
	}
}

// TestArenasAreCharged charges what guests write to arenas, wherever they write, to one bound.
func TestArenasAreCharged(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	bound := quota.NewBudget(quota.Arenas, 8192)
	write := func(a *Arena, at int) error {
		var s script
		s.do("store", uint32(puppetWindow+at), 1)
		_, err := f.Call(t.Context(), Request{Body: s.body(), Arena: a, Bound: bound})
		return err
	}
	first, second := newArena(t, 16384), newArena(t, 16384)
	for _, at := range []int{0, 8, 8192} { // two pages
		if err := write(first, at); err != nil {
			t.Fatalf("at %d: %v", at, err)
		}
	}
	if err := write(second, 4096); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("a third page of two: %v, want Exhausted", err)
	}
	if held := bound.Held(); held != 8192 {
		t.Errorf("%d bytes are charged, want 8192", held)
	}
	if err := first.Close(); err != nil || bound.Held() != 0 {
		t.Errorf("%d bytes are charged to an arena that is closed (%v)", bound.Held(), err)
	}
	if err := write(second, 4096); err != nil {
		t.Errorf("after the first one was closed: %v", err)
	}
}

// TestPlaces hands requests and responses over by place.
func TestPlaces(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	a := newArena(t, 64<<10)
	var s script
	s.do("request_offset")
	s.do("arena_alloc", 100)
	s.do("response_place", 4096, 100)
	in, err := a.Put(s.body())
	if err != nil {
		t.Fatal(err)
	}
	// A response that is written after a place was named is the response.
	p, err := f.Call(t.Context(), Request{Arena: a, Place: &in})
	want := []int64{int64(in.Offset), int64(aligned(in.Size)), 0}
	if diff := cmp.Diff(want, results(p.Body)); err != nil || p.Place != nil || diff != "" {
		t.Errorf("%v, %v (-want +got):\n%s", err, p.Place, diff)
	}
	s = script{}
	s.do("response_write", 0, 10)
	s.do("store", puppetWindow+4096, 7)
	s.do("response_place", 4096, 100)
	s.do("back")
	b := bytes.Clone(s.body())
	copy(b[3*16:], []byte{puppetEnd, 0, 0, 0})
	p, err = f.Call(t.Context(), Request{Arena: a, Body: b})
	if diff := cmp.Diff(&Extent{4096, 100}, p.Place); err != nil || p.Body != nil || diff != "" {
		t.Errorf("%v, %q (-want +got):\n%s", err, p.Body, diff)
	}
	if p.Cost.Pointer != 100 || a.Bytes()[4096] != 7 {
		t.Errorf("got %+v and %d", p.Cost, a.Bytes()[4096])
	}
}

// TestNoArena asks for what there is only with an arena, or a window.
func TestNoArena(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	ask := func() *script {
		var s script
		s.do("request_offset")
		s.do("arena_alloc", 16)
		s.do("response_place", 0, 0)
		s.do("load", puppetWindow)
		return &s
	}
	got, _ := perform(t, f, ask(), Request{})
	if diff := cmp.Diff([]int64{-1, -1, 1, 0}, got); diff != "" {
		t.Errorf("without an arena (-want +got):\n%s", diff)
	}
	a := newArena(t, 4096)
	place, err := a.Put(ask().body())
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Call(t.Context(), Request{Arena: a, Place: &place, ReadOnly: true})
	if diff := cmp.Diff([]int64{0, -1, 0}, results(p.Body)[:3]); err != nil || diff != "" {
		t.Errorf("read-only: %v (-want +got):\n%s", err, diff)
	}
	blind := deploy(t, f.version.runtime, scribbler(), Limits{})
	if p, err := blind.Call(t.Context(), Request{Arena: a, Place: &Extent{0, 0}}); err != nil {
		t.Errorf("a function without a window: %v", err)
	} else {
		fresh(t, p.Body)
	}
	for name, q := range map[string]Request{
		"no arena": {Place: &Extent{}}, "outside": {Arena: a, Place: &Extent{4096, 1}},
	} {
		if _, err := f.Call(t.Context(), q); err == nil || endingOf(err).Kind != "invalid" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLargeArena gives a function an arena of which it sees the first half.
func TestLargeArena(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	var s script
	s.do("request_offset")
	s.do("arena_alloc", puppetSize)
	s.do("arena_alloc", 16)
	s.do("response_place", puppetSize-16, 17)
	s.do("response_place", puppetSize-16, 16)
	s.do("store", puppetWindow+65536, 5)
	for name, at := range map[string]Extent{"seen": {4096, 0}, "beyond": {puppetSize, 0}, "half seen": {puppetSize - 100, 0}} {
		a := newArena(t, 2*puppetSize)
		at.Size = copy(a.Bytes()[at.Offset:], s.body())
		want := []int64{-1, 0, -1, 1, 0, 0}
		if name == "seen" {
			want[0] = int64(at.Offset)
		}
		p, err := f.Call(t.Context(), Request{Arena: a, Place: &at})
		if diff := cmp.Diff(want, results(p.Body)); err != nil || diff != "" || a.Bytes()[64<<10] != 5 {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		checkFresh(t, f)
	}
}

// TestReadOnly has a consumer write where it must not.
func TestReadOnly(t *testing.T) {
	for name, method := range methods(t) {
		t.Run(name, func(t *testing.T) {
			f := deployPuppet(t, open(t, Options{Reset: method}), Limits{})
			a := newArena(t, 64<<10)
			copy(a.Bytes()[4096:], "here")
			for range 3 {
				var s script
				s.do("load", puppetWindow+4096)
				s.do("store", puppetWindow+4096, 1)
				s.do("load", puppetWindow+4096)
				got, _ := perform(t, f, &s, Request{Arena: a, ReadOnly: true})
				if diff := cmp.Diff([]int64{0x65726568, 0, 1}, got); diff != "" || string(a.Bytes()[4096:4100]) != "here" {
					t.Errorf("%q (-want +got):\n%s", a.Bytes()[4096:4100], diff)
				}
			}
			if c := f.Counts(); c.Maps != 1 {
				t.Errorf("%d mappings for three calls with one arena", c.Maps)
			}
		})
	}
}

// TestFailedAllocations ends calls that took room: it is given back.
func TestFailedAllocations(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Fuel: 1 << 24})
	a := newArena(t, 64<<10)
	for _, end := range []string{"trap", "fail"} {
		var s script
		s.do("arena_alloc", 100)
		s.do("arena_alloc", 60<<10)
		s.do(end, 3)
		if _, err := f.Call(t.Context(), Request{Arena: a, Body: s.body()}); err == nil {
			t.Errorf("%s did not fail", end)
		}
	}
	if diff := cmp.Diff([]Extent{{0, 64 << 10}}, a.free.free); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
