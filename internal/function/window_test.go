package function

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/assemble"
)

// TestWindowKeepsApart makes arbitrary calls with arenas, without, with named ones, to
// read and to write, in two instances by turns, and compares every word that they find
// with a model: an array for each arena, zero where nothing is mapped.
func TestWindowKeepsApart(t *testing.T) {
	for name, method := range methods(t) {
		t.Run(name, func(t *testing.T) {
			r := open(t, Options{Reset: method})
			rapid.Check(t, func(rt *rapid.T) {
				w := newWorld(t, rt, r)
				defer w.close()
				for range rapid.IntRange(1, 12).Draw(rt, "calls") {
					w.call(rt)
				}
			})
		})
	}
}

// world is what the model knows: arenas as they should be.
type world struct {
	f     *Function
	arena map[string]*Arena
	want  map[*Arena][]byte
}

func newWorld(t testing.TB, rt *rapid.T, r *Runtime) *world {
	w := &world{f: deployPuppet(t, r, Limits{Fuel: 1 << 22}), arena: make(map[string]*Arena), want: make(map[*Arena][]byte)}
	for name, size := range map[string]int{"none": 0, "small": 8 << 10, "other": 16 << 10, "large": puppetSize, "odd": 36 << 10, "larger": puppetSize + 8<<10} {
		if size == 0 {
			continue
		}
		a, err := NewArena(outboard.Bytes(size))
		if err != nil {
			rt.Fatal(err)
		}
		w.arena[name], w.want[a] = a, make([]byte, size)
	}
	for range 2 { // two instances
		s, err := w.f.version.clone()
		if err != nil {
			rt.Fatal(err)
		}
		w.f.idle = append(w.f.idle, s)
	}
	return w
}

func (w *world) close() {
	for _, a := range w.arena {
		_ = a.Close()
	}
	_ = w.f.Close()
}

// call makes one call: it maps a named arena, perhaps, and loads and stores words.
func (w *world) call(rt *rapid.T) {
	pick := rapid.SampledFrom(append(slices.Sorted(maps.Keys(w.arena)), "none", "none"))
	a, readOnly := w.arena[pick.Draw(rt, "arena")], rapid.Bool().Draw(rt, "read-only")
	named, namedReadOnly := w.arena[pick.Draw(rt, "named")], rapid.Bool().Draw(rt, "named read-only")
	if named == a {
		namedReadOnly = readOnly // else the model had to follow single pages
	}
	var (
		s      script
		want   []int64
		window = make([]byte, puppetSize) // as the call sees it
		behind = 0
		things = map[string]Resource{}
	)
	if a != nil {
		copy(window, w.want[a])
		behind = min(a.Size(), puppetSize)
	}
	ask := func(name string, expect int64, args ...uint32) {
		for len(want) < len(s.steps) {
			want = append(want, -1)
		}
		s.do(name, args...)
		want = append(want, expect)
	}
	if named != nil {
		things["arena:n"] = &SharedArena{Arena: named, ReadOnly: namedReadOnly}
		at, size := s.text("arena:n")
		ask("import", 1, at, size)
		if behind+named.Size() > puppetSize {
			ask("arena_map", 0, 1)
			named = nil
		} else {
			ask("arena_map", int64(puppetWindow+behind), 1)
			copy(window[behind:], w.want[named])
		}
	}
	shared := named == a && named != nil && !readOnly && !namedReadOnly
	write := func(at int, value uint32) {
		binary.LittleEndian.PutUint32(window[at:], value)
		if shared && at < 2*behind {
			binary.LittleEndian.PutUint32(window[(at+behind)%(2*behind):], value)
		}
	}
	for range rapid.IntRange(0, 20).Draw(rt, "words") {
		at := rapid.IntRange(0, puppetSize/4-1).Draw(rt, "at") * 4
		if rapid.Bool().Draw(rt, "near") { // meet again
			at = at / 4096 * 4096
		}
		if rapid.Bool().Draw(rt, "store") {
			value := rapid.Uint32().Draw(rt, "value")
			ask("store", 0, uint32(puppetWindow+at), value)
			write(at, value)
		} else {
			ask("load", int64(int32(binary.LittleEndian.Uint32(window[at:]))), uint32(puppetWindow+at))
		}
	}
	if a != nil && !readOnly {
		copy(w.want[a], window)
	}
	if named != nil && !namedReadOnly {
		copy(w.want[named], window[behind:])
	}
	got, _ := perform(rt, w.f, &s, Request{Arena: a, ReadOnly: readOnly, Resources: &bag{things: things}})
	for i, expect := range want {
		if expect != -1 && got[i] != expect {
			rt.Fatalf("step %d of %v brought %#x, want %#x", i, s.steps[i], got[i], expect)
		}
	}
	checkFresh(rt, w.f)
}

// TestManyAtOnce calls one function with several arenas at the same time: each call finds
// what calls with its arena left, and nothing else.
func TestManyAtOnce(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Concurrency: 4, Queue: 100})
	board := newArena(t, 4096)
	var all sync.WaitGroup
	for n := range 6 {
		a := newArena(t, 8192)
		all.Go(func() {
			for round := range 40 {
				var s script
				at, size := s.text("arena:board")
				s.do("import", at, size)
				s.do("arena_map", 1)
				before := s.do("load", puppetWindow+4096)
				s.do("store", puppetWindow+4096, uint32(100*n+round+1))
				p, err := f.Call(t.Context(), Request{Body: s.body(), Arena: a, Resources: manifest(f, board)})
				want := int64(100*n + round)
				if round == 0 {
					want = 0
				}
				if got := results(p.Body); err != nil || got[before] != want {
					t.Errorf("arena %d, round %d: got %v, %v", n, round, got, err)
					return
				}
			}
		})
	}
	all.Wait()
	checkFresh(t, f)
	if c := f.Counts(); c.Rebuilt != 0 || board.holders != 1 {
		t.Errorf("got %+v, %d holders", c, board.holders)
	}
}

// TestRefusedWindows deploys modules whose window is none.
func TestRefusedWindows(t *testing.T) {
	r := open(t, Options{})
	tests := map[string]struct {
		module []byte
		size   int
		want   string
	}{
		"null":        {puppet(0), puppetSize, "could not allocate a window of 128KiB"},
		"not aligned": {puppet(puppetWindow + 16), puppetSize, "want a multiple of 4096"},
		"beyond":      {puppet(192 << 10), puppetSize, "beyond the end of the memory"},
		"negative":    {puppet(-4096), puppetSize, "beyond the end of the memory"},
		"over data":   {windowOver(assemble.Active(80<<10, 1)), 64 << 10, "other data lies within the page at 0x14000"},
		"too large":   {puppet(puppetWindow), 1 << 30, "raise it, or ask for a smaller window"},
		"other type": {assemble.File(
			assemble.Types(assemble.Type(nil, nil)), assemble.Functions(0), assemble.Memory(1, 1),
			assemble.Exports(assemble.Export(windowName, 0, 0)), assemble.Code(assemble.Body()),
		), 4096, "must take one i32 and return one"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := r.Deploy(t.Context(), test.module, Settings{Name: "app/bad", Window: outboard.Bytes(test.size), Limits: Limits{Memory: 1 << 20}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// windowOver is a module whose window begins at 64 KiB, with data.
func windowOver(data []byte) []byte {
	return assemble.File(
		assemble.Types(assemble.Type([]byte{assemble.I32}, []byte{assemble.I32})), assemble.Functions(0), assemble.Memory(4, 4),
		assemble.Exports(assemble.Export(windowName, 0, 0)), assemble.Code(assemble.Body(assemble.I32Const(64<<10)...)), assemble.Data(data),
	)
}
