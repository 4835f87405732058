package function

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// manifest is what the puppets of these tests may import.
func manifest(f *Function, shared *Arena) *bag {
	return &bag{things: map[string]Resource{
		"function:self": callee{f: f}, "function:never": waiter{}, "secret:key": secret{text: "hush"}, "bucket:seats": bucket{},
		"device:gpu": device{},
		"model:next": nextModel{}, "model:none": refusingModel{}, "model:wait": waitingModel{},
		"model:words": wordsModel{}, "model:speechless": wordsModel{refuse: true}, "model:slow": wordsModel{wait: true},
		"arena:board": &SharedArena{Arena: shared},
	}}
}

// read adds the steps that read the result, of which the first eight bytes are of interest.
func (s *script) readResult() (at int) {
	s.do("store", puppetScratch+4096, 0)
	s.do("store", puppetScratch+4100, 0)
	s.do("result_size")
	s.do("result_read", puppetScratch+4096, 8, 0)
	return s.do("load", puppetScratch+4096)
}

func word(s string) int64 {
	var b [4]byte
	copy(b[:], s)
	return int64(int32(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24))
}

// TestImports uses each kind of resource as it is meant to be.
func TestImports(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	tests := map[string]struct {
		name    string
		use     func(s *script) []int // steps whose results count
		want    []int64
		pointer int64
	}{
		"secret": {"secret:key", func(s *script) []int {
			return []int{s.do("secret", 1), s.readResult()}
		}, []int64{0, word("hush")}, 0},
		"bucket: a key": {"bucket:seats", func(s *script) []int {
			at, size := s.text("seat")
			return []int{s.do("bucket_get", 1, at, size), s.readResult()}
		}, []int64{7, word("take")}, 0},
		"bucket: no key": {"bucket:seats", func(s *script) []int {
			at, size := s.text("none")
			return []int{s.do("bucket_get", 1, at, size), s.readResult()}
		}, []int64{0, 0}, 0},
		"bucket: an error": {"bucket:seats", func(s *script) []int {
			return []int{s.do("bucket_get", 1, 0, 0), s.readResult()}
		}, []int64{-1, word("an e")}, 0},
		"transaction": {"bucket:seats", func(s *script) []int {
			at, size := s.text("ok")
			return []int{s.do("bucket_txn", 1, at, size)}
		}, []int64{0}, 0},
		"transaction: condition": {"bucket:seats", func(s *script) []int {
			at, size := s.text("unmet 42")
			return []int{s.do("bucket_txn", 1, at, size), s.readResult()}
		}, []int64{1, word("42")}, 0},
		"transaction: error": {"bucket:seats", func(s *script) []int {
			return []int{s.do("bucket_txn", 1, 0, 0), s.readResult()}
		}, []int64{2, word("not ")}, 0},
		"device: what it is": {"device:gpu", func(s *script) []int {
			return []int{s.do("device_info", 1), s.readResult()}
		}, []int64{0, word("{\"na")}, 0},
		"device: a result": {"device:gpu", func(s *script) []int {
			at, size := s.text("up four")
			return []int{s.do("device_do", 1, at, size), s.readResult()}
		}, []int64{0, word("FOUR")}, 0},
		"device: memory": {"device:gpu", func(s *script) []int {
			at, _ := s.text("four")
			list, size := s.text(turnAround(at, 4))
			return []int{s.do("device_do", 1, list, size), s.do("result_size"), s.do("load", at)}
		}, []int64{0, 0, word("ruof")}, 0},
		"device: the arena": {"device:gpu", func(s *script) []int {
			s.do("store", puppetWindow+8, uint32(word("four")))
			list, size := s.text(turnAround(puppetWindow+8, 4))
			return []int{s.do("device_do", 1, list, size), s.do("load", puppetWindow+8)}
		}, []int64{0, word("ruof")}, 0},
		"device: prints": {"device:gpu", func(s *script) []int {
			at, size := s.text("print four")
			return []int{s.do("device_do", 1, at, size), s.readResult()}
		}, []int64{1, word("it h")}, 0},
		"device: an error": {"device:gpu", func(s *script) []int {
			return []int{s.do("device_do", 1, 0, 0), s.readResult()}
		}, []int64{1, word("not ")}, 0},
		"function": {"function:self", func(s *script) []int {
			at, size := s.text(string((&script{}).body()))
			return []int{s.do("call", 1, at, size), s.do("result_size")}
		}, []int64{0, 0}, 0},
		"function: by place": {"function:self", func(s *script) []int {
			at, size := s.text(string((&script{}).body()))
			s.do("copy", puppetWindow, at, size)
			return []int{s.do("call", 1, puppetWindow, size), s.do("result_size")}
		}, []int64{0, 0}, 32},
		"function: that fails": {"function:self", func(s *script) []int {
			var inner script
			inner.do("trap")
			at, size := s.text(string(inner.body()))
			return []int{s.do("call", 1, at, size), s.readResult()}
		}, []int64{1, word("call")}, 0},
		"arena": {"arena:board", func(s *script) []int {
			return []int{s.do("arena_map", 1), s.readResult(), s.do("load", puppetWindow+4096), s.do("arena_map", 1)}
		}, []int64{puppetWindow + 4096, 8192, word("chalk"), puppetWindow + 4096}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			board, own := newArena(t, 8192), newArena(t, 4096)
			copy(board.Bytes(), "chalk")
			bag := manifest(f, board)
			var s script
			at, size := s.text(test.name)
			s.do("import", at, size)
			steps := test.use(&s)
			all, p := perform(t, f, &s, Request{Arena: own, Resources: bag})
			var got []int64
			for _, n := range steps {
				got = append(got, all[n])
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			want := []Import{{Name: test.name, Pointer: test.pointer}}
			if diff := cmp.Diff(want, p.Imports, cmpopts.IgnoreFields(Import{}, "Time", "Waited", "Calls", "Copied")); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if p.Imports[0].Calls < 2 || p.Imports[0].Waited <= 0 || p.Imports[0].Time < p.Imports[0].Waited || bag.left() != 0 {
				t.Errorf("%+v, %d not released", p.Imports, bag.left())
			}
			if text := string(p.Stdout.Text); (text == "four") != (name == "device: prints") {
				t.Errorf("standard output: %q", text)
			}
			checkFresh(t, f)
		})
	}
}

// turnAround is a list that turns some memory around.
func turnAround(at, size uint32) string {
	return "turn" + string(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, at), size))
}

// TestDeviceCosts has what goes to a device and comes back be counted, and charged for.
func TestDeviceCosts(t *testing.T) {
	const size = 32 << 10
	fuel := map[uint32]int64{}
	f := deployPuppet(t, open(t, Options{}), Limits{})
	for _, size := range []uint32{0, size} {
		var s script
		at, n := s.text("device:gpu")
		s.do("import", at, n)
		list, n := s.text(turnAround(puppetScratch+8192, size))
		s.do("device_do", 1, list, n)
		_, p := perform(t, f, &s, Request{Resources: manifest(f, nil)})
		if p.Imports[0].Copied != int64(2*size) || p.Imports[0].Calls != 2 {
			t.Errorf("got %+v", p.Imports[0])
		}
		fuel[size] = p.Cost.Fuel
	}
	if more := fuel[size] - fuel[0]; more < 2*size/bytesPerFuel {
		t.Errorf("%d bytes cost %d more", 2*size, more)
	}
	checkFresh(t, f)
}

// TestRefusedImports asks for what is not there, or not allowed.
func TestRefusedImports(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	for name, want := range map[string]string{
		"bucket:other": `import bucket:other: add "bucket:other" under imports in app.yaml`,
		"":             `import : add "" under imports in app.yaml`,
	} {
		var s script
		at, size := s.text(name)
		n := s.do("import", at, size)
		length := s.do("result_size")
		got, p := perform(t, f, &s, Request{Resources: manifest(f, nil)})
		if got[n] != 0 || got[length] != int64(len(want)) || p.Imports[0].Err != want {
			t.Errorf("%s: got %v, %+v", name, got, p.Imports)
		}
	}
	var s script
	n := s.do("import", 0, maxName+1)
	m := s.do("import", 1<<31, 1)
	at, size := s.text("secret:key")
	o := s.do("import", at, size)
	if got, p := perform(t, f, &s, Request{}); got[n] != 0 || got[m] != 0 || got[o] != 0 || len(p.Imports) != 1 {
		t.Errorf("got %v, %+v", got, p.Imports)
	}
}

// TestSharedArena has two instances see the same bytes, which outlive both.
func TestSharedArena(t *testing.T) {
	r := open(t, Options{})
	board := newArena(t, 8192)
	for n := range 4 {
		f := deployPuppet(t, r, Limits{})
		var s script
		at, size := s.text("arena:board")
		s.do("import", at, size)
		s.do("arena_map", 1)
		before := s.do("load", puppetWindow+100)
		s.do("store", puppetWindow+100, uint32(n+1))
		s.do("drop", 1)
		after := s.do("load", puppetWindow+100)
		mapped := s.do("arena_map", 1)
		got, _ := perform(t, f, &s, Request{Resources: manifest(f, board)})
		if got[before] != int64(n) || got[after] != 0 || got[mapped] != 0 {
			t.Errorf("call %d: got %v", n, got)
		}
		checkFresh(t, f)
	}
}

// TestNestedCalls has functions call each other in a circle.
func TestNestedCalls(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Concurrency: 100})
	inner := &script{}
	for range maxDepth + 5 {
		var s script
		at, size := s.text("function:self")
		s.do("import", at, size)
		at, size = s.text(string(inner.body()))
		s.do("call", 1, at, size)
		s.do("result_read", puppetResults+40, 64, 0)
		inner = &s
	}
	bag := manifest(f, nil)
	_, err := f.Call(t.Context(), Request{Body: inner.body(), Resources: bag})
	if err != nil || bag.left() != 0 || f.Counts().Cloned != maxDepth+1 {
		t.Errorf("%v, %d held, %+v", err, bag.left(), f.Counts())
	}
	if _, err := f.Call(t.Context(), Request{Depth: maxDepth + 1}); endingOf(err) != limited("depth") {
		t.Errorf("got %v", err)
	}
}

// TestWaitingHostCall waits for a function that never answers: the deadline ends it, or
// the caller.
func TestWaitingHostCall(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Deadline: 50 * time.Millisecond})
	for name, op := range map[string]string{"function:never": "call", "device:gpu": "device_do"} {
		var s script
		at, size := s.text(name)
		s.do("import", at, size)
		at, size = s.text("wait")
		s.do(op, 1, at, size)
		bag := manifest(f, nil)
		if _, err := f.Call(t.Context(), Request{Body: s.body(), Resources: bag}); endingOf(err) != limited("deadline") || bag.left() != 0 {
			t.Errorf("%s: got %v, %d held", name, err, bag.left())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := f.Call(ctx, Request{Body: s.body(), Resources: bag}); endingOf(err).Kind != "other" || bag.left() != 0 {
			t.Errorf("%s: got %v, %d held", name, err, bag.left())
		}
		checkFresh(t, f)
	}
}

func TestMeta(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	about := func(name string) (string, bool) {
		value, ok := map[string]string{"method": "POST", "empty": ""}[name]
		return value, ok
	}
	for name, want := range map[string][]int64{"method": {1, word("POST")}, "empty": {1, 0}, "colour": {0, 0}} {
		var s script
		at, size := s.text(name)
		n, m := s.do("meta", at, size), s.readResult()
		got, _ := perform(t, f, &s, Request{Meta: about})
		if diff := cmp.Diff(want, []int64{got[n], got[m]}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		if got, _ := perform(t, f, &s, Request{}); got[n] != 0 {
			t.Errorf("%s is not documented", name)
		}
	}
}

// TestHostileImports has a guest lie about handles, places and memory, and import without end.
func TestHostileImports(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{Fuel: 1 << 23, Memory: 1 << 20})
	const far = 0xfffffff0
	load := func(s *script, name string) {
		at, size := s.text(name)
		s.do("import", at, size)
	}
	tests := map[string]struct {
		act  func(s *script)
		want ending
		hint string // part of the last result's text
	}{
		"forged handles": {act: func(s *script) {
			load(s, "bucket:seats")
			for _, number := range []uint32{0, 2, 1 << 31, far} {
				for _, op := range []string{"drop", "secret", "arena_map", "call", "bucket_get", "bucket_txn", "device_info", "device_do"} {
					s.do(op, number, 0, 4)
				}
			}
		}, hint: "is no handle of this call"},
		"dropped handle": {act: func(s *script) { load(s, "secret:key"); s.do("drop", 1); s.do("secret", 1) }, hint: "1 is no handle"},
		"dropped twice":  {act: func(s *script) { load(s, "secret:key"); s.do("drop", 1); s.do("drop", 1) }, hint: "1 is no handle"},
		"other kind":     {act: func(s *script) { load(s, "secret:key"); s.do("bucket_get", 1, 0, 0) }, hint: "secret:key is no bucket"},
		"arena as function": {act: func(s *script) {
			load(s, "arena:board")
			s.do("call", 1, 0, 0)
		}, hint: "arena:board is no function"},
		"memory outside": {act: func(s *script) {
			load(s, "bucket:seats")
			load(s, "function:self")
			load(s, "device:gpu")
			for _, op := range []string{"bucket_get", "bucket_txn"} {
				s.do(op, 1, far, 100)
			}
			at, size := s.text(turnAround(far, 100))
			s.do("device_do", 3, far, 100)
			s.do("device_do", 3, at, size)
			s.do("meta", far, 100)
			s.do("result_read", far, 100, 0)
			s.do("call", 2, far, 100)
		}, hint: "outside of the function's memory"},
		"huge arguments":    {act: func(s *script) { load(s, "bucket:seats"); s.do("bucket_txn", 1, 0, far) }, hint: "want at most 16MiB"},
		"places outside":    {act: func(s *script) { s.do("response_place", 8192, 1); s.do("response_place", far, far) }},
		"no room":           {act: func(s *script) { s.do("arena_alloc", far); s.do("arena_alloc", 8193) }},
		"import for ever":   {act: func(s *script) { load(s, "secret:key"); s.do("back") }, want: limited("fuel")},
		"map for ever":      {act: func(s *script) { load(s, "arena:board"); s.do("arena_map", 1); s.do("drop", 1); s.do("back") }, want: limited("fuel")},
		"alloc for ever":    {act: func(s *script) { s.do("arena_alloc", 1); s.do("back") }, want: limited("fuel")},
		"place, then trap":  {act: func(s *script) { s.do("response_place", 0, 8); s.do("trap") }, want: ended("trap")},
		"place of an error": {act: func(s *script) { s.do("response_place", 0, 8); s.do("fail", 1) }, want: ended("failed")},
		"import and trap":   {act: func(s *script) { load(s, "arena:board"); s.do("arena_map", 1); s.do("trap") }, want: ended("trap")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			bag := manifest(f, newArena(t, 8192))
			var s script
			test.act(&s)
			n := s.do("result_size")
			s.do("result_read", puppetScratch+4096, 1024, 0)
			s.do("response_write", puppetScratch+4096, 1024)
			p, err := f.Call(t.Context(), Request{Body: s.body(), Arena: newArena(t, 8192), Resources: bag})
			if diff := cmp.Diff(test.want, endingOf(err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if err == nil && (!strings.Contains(string(p.Body[:1024]), test.hint) || results(p.Body[1024:])[n] < int64(len(test.hint))) {
				t.Errorf("the result is %.100q, want %q", p.Body, test.hint)
			}
			if bag.left() != 0 {
				t.Errorf("%d imports were not released", bag.left())
			}
			checkFresh(t, f)
		})
	}
}

// TestManyImports imports more than a call may hold, and more names than are told apart.
func TestManyImports(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	bag := manifest(f, nil)
	var s script
	at, size := s.text("secret:key")
	for range maxHandles + 1 {
		s.do("import", at, size)
	}
	got, _ := perform(t, f, &s, Request{Resources: bag})
	if got[maxHandles] != maxHandles || got[maxHandles+1] != 0 || bag.left() != 0 {
		t.Errorf("got %v, %d held", got, bag.left())
	}
	s = script{}
	for n := range maxImports + 50 {
		at, size := s.text(fmt.Sprint("guess:", n))
		s.free = 0
		s.do("import", at, size)
	}
	_, p := perform(t, f, &s, Request{Resources: bag})
	if n := len(p.Imports); n != maxImports+1 || p.Imports[n-1].Name != otherImports || p.Imports[n-1].Calls != 50 {
		t.Errorf("got %d imports, the last is %+v", n, p.Imports[n-1])
	}
}

// FuzzHost has a puppet say anything at all to the host.
func FuzzHost(f *testing.F) {
	r := open(f, Options{})
	puppets := deployPuppet(f, r, Limits{Fuel: 1 << 22, Memory: 1 << 20, Deadline: 200 * time.Millisecond})
	var all script
	for _, op := range puppetOps() {
		all.do(op.name, puppetScratch, 4, 4)
	}
	f.Add(all.body(), false)
	var s script
	for _, name := range []string{"function:self", "secret:key", "bucket:seats", "arena:board", "device:gpu"} {
		at, size := s.text(name)
		s.do("import", at, size)
	}
	s.do("arena_map", 4)
	s.do("call", 1, puppetWindow, 16)
	at, size := s.text(turnAround(puppetWindow, 4096))
	s.do("device_do", 5, at, size)
	f.Add(s.body(), true)
	var nn script
	nn.infer("next", 1, []uint32{4}, "abcd")
	f.Add(nn.body(), false)
	f.Fuzz(func(t *testing.T, body []byte, readOnly bool) {
		a, board := newArena(t, 8192), newArena(t, 8192)
		bag := manifest(puppets, board)
		delete(bag.things, "function:never")
		delete(bag.things, "model:wait")
		p, err := puppets.Call(t.Context(), Request{Body: body, Arena: a, ReadOnly: readOnly, Resources: bag})
		if kind := endingOf(err); err != nil && kind.Limit == "" && kind.Cause == "" {
			t.Errorf("it ended with %v", err)
		}
		if p.Place != nil {
			if _, err := a.Slice(*p.Place); err != nil {
				t.Error(err)
			}
		}
		if bag.left() != 0 {
			t.Errorf("%d imports were not released", bag.left())
		}
		checkFresh(t, puppets)
		if c := puppets.Counts(); c.Rebuilt != 0 {
			t.Errorf("got %+v", c)
		}
	})
}
