package compute

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Holders of one source share what was built of it, and nothing else.
func TestProgramsAreShared(t *testing.T) {
	d := dial(t, Options{Shared: true}, 0)
	var first *built
	for range 3 {
		one, other := holder(t, d), holder(t, d)
		for i, h := range []*Holder{one, other} {
			do(t, h, new(list).program(1, source, "-w").program(2, source, "").buffer(1, 4), nil)
			do(t, h, new(list).launch(1, "add", 1, 0, 2).mem(1).scalar(words(1, func(int) uint32 { return uint32(i) })), nil)
		}
		if one.programs[1].built != other.programs[1].built || one.programs[1].built == one.programs[2].built {
			t.Error("the programs are not those of their sources")
		}
		if first == nil {
			first = one.programs[1].built
		}
		if first != one.programs[1].built {
			t.Error("what was built is forgotten")
		}
		if r := do(t, other, new(list).read(1, 0, 4), nil); string(r.Read) != "\x01\x00\x00\x00" {
			t.Errorf("read %q", r.Read)
		}
		one.Close()
		other.Close()
		one.abandoned, other.abandoned = true, true // for the test's own end
		if first.users != 0 || len(d.library.idle) != 2 {
			t.Errorf("%d users, %d idle", first.users, len(d.library.idle))
		}
	}
}

// A program with variables of its own is one holder's alone: they are state.
func TestProgramsWithVariables(t *testing.T) {
	const counter = `global int seen = 0; kernel void next(global int *a) { a[0] = ++seen; }`
	d := dial(t, Options{Shared: true}, 0)
	l := new(list).program(1, counter, "-cl-std=CL3.0").buffer(1, 4).launch(1, "next", 1, 0, 1).mem(1).read(1, 0, 4)
	for range 2 {
		h := holder(t, d)
		r, err := h.Do(t.Context(), *l, nil)
		if err != nil && strings.Contains(err.Error(), "CL_BUILD_PROGRAM_FAILURE") {
			return // such programs can't be built here
		}
		if err != nil || string(r.Read) != "\x01\x00\x00\x00" {
			t.Errorf("read %q, %v", r.Read, err)
		}
	}
}

func TestLibraryForgets(t *testing.T) {
	var l library
	var gone []uint64
	for n := range maxIdle + 3 {
		b, begun := l.acquire(keyOf(fmt.Sprint(n), ""))
		if !begun {
			t.Fatalf("%d was there", n)
		}
		b.id = uint64(n)
		l.publish(b, n == maxIdle) // which is one holder's
		gone = append(gone, l.release(b)...)
	}
	if got := fmt.Sprint(gone); got != fmt.Sprint([]uint64{maxIdle, 0, 1}) {
		t.Errorf("%s are gone", got)
	}
	if b, begun := l.acquire(keyOf("2", "")); begun || b.id != 2 || len(l.idle) != maxIdle-1 || len(l.built) != maxIdle {
		t.Errorf("got %+v, %t", b, begun)
	}
	if _, begun := l.acquire(keyOf("", "2")); !begun {
		t.Error("options are taken for a source")
	}
}

// Many build one source at once: one does, unless he gives up.
func TestBuildOnce(t *testing.T) {
	d := dial(t, Options{Shared: true}, 0)
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errEnough)
	var all sync.WaitGroup
	for i := range 8 {
		h := holder(t, d)
		all.Go(func() {
			ctx := t.Context()
			if i%2 == 0 {
				ctx = over
			}
			_, err := h.Do(ctx, *new(list).program(1, source+fmt.Sprint("// ", t.Name()), ""), nil)
			if i%2 == 0 && !errors.Is(err, errEnough) || i%2 == 1 && err != nil {
				t.Errorf("holder %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if len(d.library.built) != 1 {
		t.Errorf("%d programs were built", len(d.library.built))
	}
}
