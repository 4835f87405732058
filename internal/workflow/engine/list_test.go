package engine_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// A counted log counts what is asked of it. Its scans don't tell of the latest appends.
type countedLog struct {
	engine.Log
	reads, scans atomic.Int64
	behind       sync.Map // keys
}

func (l *countedLog) Read(ctx context.Context, key string) ([]state.Record, error) {
	l.reads.Add(1)
	return l.Log.Read(ctx, key)
}

func (l *countedLog) Scan(ctx context.Context, prefix string, f func([]state.Record) error) error {
	l.scans.Add(1)
	seen := map[string]bool{}
	return l.Log.Scan(ctx, prefix, func(records []state.Record) error {
		key := records[0].Key
		if _, behind := l.behind.Load(key); behind && seen[key] {
			return nil
		}
		seen[key] = true
		return f(records)
	})
}

// asked are the reads and scans since it was called last.
func (l *countedLog) asked() string {
	return fmt.Sprint(l.reads.Swap(0), " reads, ", l.scans.Swap(0), " scans")
}

// What is listed of thousands of executions is read in one pass, and then no more until it
// changes.
func TestListReadsWhatHasChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &countedLog{}
		w := open(t, echo, func(o *engine.Options) { log.Log, o.Log = o.Log, log })
		const many = 300
		w.pool.Deploy("app", "flow", parse(t, `do: [{w: {wait: PT2H}}, {b: {call: f, with: {body: "${ {x: .} }"}}}]`))
		start := func(name string, input string) {
			t.Helper()
			if _, err := w.engine.Start(t.Context(), engine.StartRequest{App: "app", Workflow: "flow", Name: name, Input: []byte(input)}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range many {
			name := ""
			if i%2 == 0 {
				name = fmt.Sprint("e", i)
			}
			start(name, "1")
		}
		// wants lists all, and wants so many of each state.
		wants := func(f engine.Filter, running, completed int, asked string) {
			t.Helper()
			log.asked()
			list, err := w.engine.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			got := map[core.Status]int{}
			for _, x := range list {
				if got[x.Status]++; x.Workflow != "flow" || x.Started.IsZero() || x.Status.Over() == x.Ended.IsZero() {
					t.Fatalf("got %+v", x)
				}
			}
			if got[core.Running] != running || got[core.Completed] != completed {
				t.Errorf("got %v, want %d running and %d completed", got, running, completed)
			}
			if now := log.asked(); now != asked {
				t.Errorf("%s, want %s", now, asked)
			}
		}
		wants(engine.Filter{App: "app"}, many, 0, "0 reads, 1 scans")
		wants(engine.Filter{}, many, 0, "0 reads, 0 scans")
		time.Sleep(50 * time.Minute) // the engine itself reads names that callers chose each full hour
		start("late", fmt.Sprintf("%q", strings.Repeat("x", 2000)))
		wants(engine.Filter{}, many+1, 0, "1 reads, 0 scans")
		time.Sleep(time.Hour + 15*time.Minute) // the first ones end
		log.behind.Store("test/app/e0", true)
		wants(engine.Filter{App: "app"}, 1, many, "1 reads, 1 scans")
		wants(engine.Filter{}, 1, many, "0 reads, 0 scans")
		time.Sleep(50 * time.Minute)
		wants(engine.Filter{Brief: true}, 0, many+1, "1 reads, 0 scans")
		wants(engine.Filter{Brief: true}, 0, many+1, "0 reads, 0 scans")
		wants(engine.Filter{}, 0, many+1, "1 reads, 0 scans") // its output is large
		w.close()
	})
}
