package versions_test

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
	"github.com/outboard-run/outboard/internal/pool/versions"
)

// A note is a version of a text.
type note struct {
	Number int
	Text   string
	Of     int
	By     outboard.NodeID
}

func (n *note) Numbers() (own, of int) { return n.Number, n.Of }

func (n *note) Stamp(number int, _ time.Time, by outboard.NodeID) { n.Number, n.By = number, by }

func (n *note) Size() int { return len(n.Text) }

type (
	history = versions.History[note, *note]
	keeper  = versions.Keeper[note, *note]
)

func open(s *state.State, self outboard.NodeID) keeper {
	return keeper{State: s, Key: "note", Self: self, Versions: 4, Bytes: 40}
}

func push(t *testing.T, k keeper, text string) note {
	t.Helper()
	n, err := k.Push(t.Context(), "write", func(history) (note, error) { return note{Text: text}, nil })
	if err != nil {
		t.Error(err)
	}
	return n
}

var errFirst = errors.New("there is no earlier version")

func rollback(t *testing.T, k keeper) (note, error) {
	t.Helper()
	return k.Push(t.Context(), "roll back", func(h history) (note, error) {
		n, ok := h.Previous()
		if !ok {
			return n, errFirst
		}
		n.Of = n.Number
		return n, nil
	})
}

func read(t *testing.T, s *state.State) history {
	t.Helper()
	e, err := s.Get(t.Context(), "note")
	if err != nil {
		t.Fatal(err)
	}
	h, err := versions.Decode[note](e)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// Each roll-back goes further back.
func TestRollback(t *testing.T) {
	s := statetest.Open(t)
	a, b := open(s, "harbour"), open(s, "dinghy")
	if _, err := rollback(t, a); !errors.Is(err, errFirst) {
		t.Errorf("roll back of nothing: %v", err)
	}
	for _, text := range []string{"one", "two", "three"} {
		push(t, a, text)
	}
	for _, want := range []note{{4, "two", 2, "dinghy"}, {5, "one", 1, "dinghy"}} {
		if got, err := rollback(t, b); err != nil || got != want {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
	}
	if _, err := rollback(t, b); !errors.Is(err, errFirst) {
		t.Errorf("roll back beyond the first: %v", err)
	}
	push(t, a, "six")
	if got, err := rollback(t, a); err != nil || got.Text != "one" {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A version that was rolled back never comes back by the roll-back of a later one.
func TestPrevious(t *testing.T) {
	tests := map[string]struct {
		history []int // what each version brought back, 0 for a new content
		first   int   // number of the first version that is kept
		want    int   // what a roll-back brings back, 0 for nothing
	}{
		"nothing":                              {nil, 1, 0},
		"one":                                  {[]int{0}, 1, 0},
		"two":                                  {[]int{0, 0}, 1, 1},
		"rolled back":                          {[]int{0, 0, 0, 2}, 1, 1},
		"rolled back twice":                    {[]int{0, 0, 0, 2, 1}, 1, 0},
		"new after a roll-back":                {[]int{0, 0, 0, 2, 0}, 1, 2},
		"new after two roll-backs":             {[]int{0, 0, 0, 2, 1, 0}, 1, 1},
		"that one rolled back":                 {[]int{0, 0, 0, 2, 0, 2}, 1, 1},
		"a rolled back one comes back by hand": {[]int{0, 0, 1, 2}, 1, 1},
		"the same again":                       {[]int{0, 0, 2}, 1, 1},
		"the original is not kept any more":    {[]int{0, 1, 0}, 2, 1},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var h history
			for i, of := range test.history {
				h.Versions = append(h.Versions, note{Number: test.first + i, Of: of})
			}
			got, ok := h.Previous()
			if n := cmp.Or(got.Of, got.Number); n != test.want || ok != (test.want != 0) {
				t.Errorf("got %+v, %v, want the content of %d", got, ok, test.want)
			}
		})
	}
}

// Concurrent writers are serialised.
func TestAtOnce(t *testing.T) {
	s := statetest.Open(t)
	var all sync.WaitGroup
	for _, k := range []keeper{open(s, "harbour"), open(s, "dinghy")} {
		for range 10 {
			all.Go(func() { push(t, k, "text") })
		}
	}
	all.Wait()
	if got := read(t, s).Current().Number; got != 20 {
		t.Errorf("the last of 20 versions has the number %d", got)
	}
}

func TestKept(t *testing.T) {
	tests := map[string]struct {
		sizes []int
		want  []int // numbers
	}{
		"few":             {[]int{5, 5, 5}, []int{1, 2, 3}},
		"many":            {[]int{1, 1, 1, 1, 1, 1}, []int{3, 4, 5, 6}},
		"large":           {[]int{15, 15, 15}, []int{2, 3}},
		"larger than all": {[]int{5, 50}, []int{2}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := statetest.Open(t)
			for _, size := range test.sizes {
				push(t, open(s, "harbour"), fmt.Sprintf("%*d", size, 0))
			}
			var got []int
			for _, n := range read(t, s).Versions {
				got = append(got, n.Number)
			}
			if diff := gocmp.Diff(got, test.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Numbers are never given twice, not after a removal either.
func TestRemove(t *testing.T) {
	s := statetest.Open(t)
	k := open(s, "harbour")
	push(t, k, "one")
	push(t, k, "two")
	if err := k.Remove(t.Context(), "remove", func(history) error { return errFirst }); !errors.Is(err, errFirst) {
		t.Errorf("a removal that was refused: %v", err)
	}
	if err := k.Remove(t.Context(), "remove", func(history) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if h := read(t, s); h.Current() != nil || h.Last != 2 {
		t.Errorf("got %+v", h)
	}
	if n := push(t, k, "three"); n.Number != 3 {
		t.Errorf("the next one has the number %d", n.Number)
	}
	if _, err := rollback(t, k); !errors.Is(err, errFirst) {
		t.Errorf("roll back to what was removed: %v", err)
	}
}

type dated struct{ At time.Time }

func (*dated) Numbers() (own, of int) { return 1, 0 }

func (*dated) Stamp(int, time.Time, outboard.NodeID) {}

func (*dated) Size() int { return 1 }

// A joined node writes a time that can be read and not be written again.
func TestTimesOfHostileNodes(t *testing.T) {
	e := state.Entry{Value: []byte(`{"versions":[{"At":"2026-01-01T00:00:00+24:00"}]}`)}
	if h, err := versions.Decode[dated](e); err == nil {
		t.Errorf("versions %+v", h.Versions)
	}
}
