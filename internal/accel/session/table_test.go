package session

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestTable(t *testing.T) {
	const buffer, kernel Kind = 1, 2
	tab := NewTable(2)
	if err := tab.Add(7, Entry{Kind: buffer, Handle: 70}); err != nil {
		t.Fatal(err)
	}
	if e, ok := tab.Get(7, buffer); !ok || e.Handle != 70 {
		t.Errorf("Get: %v, %v", e, ok)
	}
	if _, ok := tab.Get(7, kernel); ok {
		t.Error("an object passed for another kind")
	}
	if _, ok := tab.Remove(7, kernel); ok {
		t.Error("an object was removed as another kind")
	}
	for id, want := range map[uint64]error{0: ErrNoObject, 7: ErrIDUsed} {
		if err := tab.Add(id, Entry{Kind: buffer}); !errors.Is(err, want) {
			t.Errorf("Add(%d): %v, want %v", id, err, want)
		}
	}
	tab.Remove(7, buffer)
	if err := tab.Add(7, Entry{Kind: buffer}); !errors.Is(err, ErrIDUsed) {
		t.Errorf("Add of a removed id: %v, want %v", err, ErrIDUsed)
	}
	_ = tab.Add(8, Entry{Kind: kernel})
	_ = tab.Add(9, Entry{Kind: kernel})
	if err := tab.Add(10, Entry{Kind: kernel}); !errors.Is(err, ErrTableFull) {
		t.Errorf("Add to a full table: %v", err)
	}
}

func TestTableReplace(t *testing.T) {
	const buffer, kernel Kind = 1, 2
	tab := NewTable(4)
	if err := errors.Join(tab.Add(1, Entry{Kind: buffer, Handle: 10}), tab.Add(2, Entry{Kind: kernel, Handle: 20})); err != nil {
		t.Fatal(err)
	}
	tab.Replace(1, Entry{Kind: buffer, Handle: 11})
	tab.Replace(3, Entry{Kind: buffer, Handle: 30}) // no living object
	if e, ok := tab.Any(1); !ok || e.Handle != 11 {
		t.Errorf("Any(1) = %v, %v after Replace", e, ok)
	}
	if e, ok := tab.Any(3); ok || tab.Len() != 2 {
		t.Errorf("Replace made object 3: %v; %d objects", e, tab.Len())
	}
	seen := map[uint64]uintptr{}
	tab.All(func(id uint64, e Entry) bool { seen[id] = e.Handle; return true })
	if len(seen) != 2 || seen[1] != 11 || seen[2] != 20 {
		t.Errorf("All visits %v", seen)
	}
	visits := 0
	tab.All(func(uint64, Entry) bool { visits++; return false })
	if visits != 1 {
		t.Errorf("All made %d visits after it was told to stop", visits)
	}
}

// TestTableUsed compares the window with a set that remembers everything.
func TestTableUsed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab, used, highest := NewTable(0), map[uint64]bool{}, uint64(0)
		step := rapid.OneOf(rapid.Int64Range(-40, 40), rapid.Int64Range(-3*usedWindow, 3*usedWindow))
		for range rapid.IntRange(1, 200).Draw(t, "adds") {
			id := uint64(max(1, int64(highest)+step.Draw(t, "step")))
			err := tab.Add(id, Entry{Kind: 1})
			tooOld := highest >= usedWindow && id <= highest-usedWindow
			if want := used[id] || tooOld; errors.Is(err, ErrIDUsed) != want {
				t.Fatalf("Add(%d) with highest %d: %v, used before: %v", id, highest, err, used[id])
			}
			used[id], highest = true, max(highest, id)
		}
	})
}

func BenchmarkTableGet(b *testing.B) {
	tab := NewTable(0)
	for id := range uint64(1000) {
		_ = tab.Add(id+1, Entry{Kind: 1})
	}
	id := uint64(0)
	for b.Loop() {
		id = id%1000 + 1
		tab.Get(id, 1)
	}
}
