// Package health records the condition of the parts of a process: which of them work, and why the
// others do not.
package health

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A Problem is a part that does not work.
type Problem struct {
	// Part names it: a plane, or a service of one.
	Part string `json:"part"`
	// Text describes the problem.
	Text string `json:"text"`
	// Since is when it began.
	Since time.Time `json:"since"`
}

// A Board has the problems of a process. The zero value has none. All methods of a nil Board
// do nothing.
type Board struct {
	mu       sync.Mutex
	problems map[string]Problem
}

// Report sets the condition of a part; nil means that it works.
func (b *Board) Report(part string, err error) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.problems, part)
		return
	}
	p, ok := b.problems[part]
	if !ok {
		p = Problem{Part: part, Since: time.Now().UTC()}
	}
	p.Text = err.Error()
	if b.problems == nil {
		b.problems = map[string]Problem{}
	}
	b.problems[part] = p
}

// Reporter returns a function that reports the condition of a part.
func (b *Board) Reporter(part string) func(error) {
	return func(err error) { b.Report(part, err) }
}

// Problems lists the parts that do not work, by name.
func (b *Board) Problems() []Problem {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := make([]Problem, 0, len(b.problems))
	for _, p := range b.problems {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b Problem) int { return cmp.Compare(a.Part, b.Part) })
	return all
}
