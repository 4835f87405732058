package collective

import (
	"fmt"
	"sync"
)

// announced is a call as a rank has announced it.
type announced struct {
	call      Call
	algorithm Algorithm
}

// window is the number of calls by which a rank may be ahead of another, and the number of past
// calls kept for comparison with the calls of ranks that are behind.
const window = 1024

// A ledger compares the calls of a rank with the calls that other ranks announce to it. Each rank
// announces a call to the next rank, and, before their elements, to the ranks that it sends
// elements to: so some rank detects a disagreement even if all would wait for each other.
type ledger struct {
	rank int
	name func(rank int) int

	mu     sync.Mutex
	number uint64               // of the last call
	own    map[uint64]announced // the last calls
	early  map[entry]announced  // calls that this rank has not made yet
}

type entry struct {
	rank   int
	number uint64
}

func newLedger(rank int, name func(rank int) int) *ledger {
	return &ledger{rank: rank, name: name, own: make(map[uint64]announced), early: make(map[entry]announced)}
}

// begin makes a the next call, and returns its number, or a *MismatchError if another rank has
// announced a different call.
func (l *ledger) begin(a announced, ranks int) (uint64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.own[l.number] = a
	delete(l.own, l.number-window)
	for rank := range ranks {
		e := entry{rank, l.number}
		theirs, ok := l.early[e]
		delete(l.early, e)
		if ok {
			if err := l.compare(e, theirs, a); err != nil {
				return 0, err
			}
		}
	}
	return l.number, nil
}

// receiveAnnouncement processes a rank's announcement of a call.
func (l *ledger) receiveAnnouncement(rank int, number uint64, a announced) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if mine, ok := l.own[number]; ok {
		return l.compare(entry{rank, number}, a, mine)
	}
	if number > l.number+window {
		return fmt.Errorf("it is more than %d calls ahead", window)
	}
	if number > l.number {
		l.early[entry{rank, number}] = a
	}
	return nil
}

func (l *ledger) compare(e entry, theirs, mine announced) error {
	if mine.call.Same(theirs.call) && mine.algorithm == theirs.algorithm {
		return nil
	}
	return &MismatchError{Number: e.number, RankA: l.name(e.rank), A: theirs.call, RankB: l.name(l.rank), B: mine.call}
}
