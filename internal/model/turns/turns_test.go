package turns_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/model/turns"
)

// waiting are requests by their names, which begin with the client's.
type waiting struct {
	turns.Order
	list  []*turns.Turn
	names map[*turns.Turn]string
}

func (w *waiting) add(name string, priority int) {
	t := &turns.Turn{Client: name[:1], Priority: priority}
	w.names[t] = name
	w.list = append(w.list, t)
	w.Add(t)
}

// start executes the next request, and returns its name.
func (w *waiting) start() string {
	t := slices.MinFunc(w.list, (*turns.Turn).Compare)
	w.Start(t)
	w.Remove(t)
	w.list = slices.DeleteFunc(w.list, func(o *turns.Turn) bool { return o == t })
	return w.names[t]
}

func TestOrder(t *testing.T) {
	w := &waiting{names: map[*turns.Turn]string{}}
	for _, name := range []string{"a1", "a2", "a3", "a4"} {
		w.add(name, 0)
	}
	order := []string{w.start()}
	w.add("b1", 0)
	w.add("a5", 9) // before a2 to a4, and not before b1
	w.add("c1", -5)
	if w.IsSole("a") || w.Waiting("a") != 4 || w.Waiting("d") != 0 {
		t.Error("the counts are wrong")
	}
	for len(w.list) > 3 {
		order = append(order, w.start())
	}
	w.add("d1", 0) // a client that comes late has no turns that are over
	for len(w.list) > 0 {
		order = append(order, w.start())
	}
	if got, want := strings.Join(order, " "), "a1 b1 a5 c1 a2 d1 a3 a4"; got != want {
		t.Errorf("executed %s, want %s", got, want)
	}
	if !w.IsSole("a") {
		t.Error("nothing waits")
	}
}
