package tenant

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// fakeNeighbours answer with what they have, or with what is in its place.
type fakeNeighbours map[outboard.NodeID]func() ([]byte, error)

func (f fakeNeighbours) read(ctx context.Context, node outboard.NodeID, _ string) ([]byte, error) {
	if f[node] == nil { // it is silent
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f[node]()
}

func (fakeNeighbours) keep(context.Context, outboard.NodeID, string, []byte) error { return nil }

// A file comes from any node that has it whole. Nodes that can't be reached yet are asked
// again; a file that nobody has is missed at once.
func TestFetchFromNodes(t *testing.T) {
	right := artifact.Digest([]byte("right"))
	has := func(content string) func() ([]byte, error) {
		return func() ([]byte, error) { return []byte(content), nil }
	}
	fails := func(kind outboard.Kind) func() ([]byte, error) {
		return func() ([]byte, error) { return nil, outboard.Errorf(kind, "", "no") }
	}
	later := func(when time.Duration) func() ([]byte, error) {
		begin := time.Now()
		return func() ([]byte, error) {
			if time.Since(begin) < when {
				return nil, outboard.Errorf(outboard.Unreachable, "", "not yet")
			}
			return []byte("right"), nil
		}
	}
	for name, c := range map[string]struct {
		nodes func() fakeNeighbours
		heard time.Duration
		took  time.Duration // at most
		fails bool
	}{
		"one has it":               {nodes: func() fakeNeighbours { return fakeNeighbours{"a": has("right")} }},
		"one has something else":   {nodes: func() fakeNeighbours { return fakeNeighbours{"a": has("wrong"), "b": has("right")} }},
		"all have something else":  {nodes: func() fakeNeighbours { return fakeNeighbours{"a": has("wrong"), "b": has("")} }, fails: true},
		"nobody has it":            {nodes: func() fakeNeighbours { return fakeNeighbours{"a": fails(outboard.NotFound)} }, fails: true},
		"one is not in reach yet":  {nodes: func() fakeNeighbours { return fakeNeighbours{"a": later(time.Second)} }, took: 2 * time.Second},
		"one is never in reach":    {nodes: func() fakeNeighbours { return fakeNeighbours{"a": later(time.Hour)} }, took: 2 * fetchPatience, fails: true},
		"one is silent":            {nodes: func() fakeNeighbours { return fakeNeighbours{"a": nil, "b": has("right")} }, took: hedgeAfter},
		"there is nobody":          {nodes: func() fakeNeighbours { return nil }, fails: true},
		"the others are not known": {nodes: func() fakeNeighbours { return fakeNeighbours{"a": has("right")} }, heard: time.Second, took: 2 * time.Second},
		"they never become known":  {nodes: func() fakeNeighbours { return nil }, heard: time.Hour, took: 2 * fetchPatience, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, begin := c.nodes(), time.Now()
				heard := func() bool { return time.Since(begin) >= c.heard }
				f := &files{peers: nodes, heard: heard, others: func() (all []outboard.NodeID) {
					for n := range nodes {
						if heard() {
							all = append(all, n)
						}
					}
					return all
				}}
				r, err := f.Fetch(t.Context(), right)
				if took := time.Since(begin); took > c.took {
					t.Errorf("it took %v", took)
				}
				if c.fails {
					if outboard.KindOf(err) != outboard.NotFound {
						t.Errorf("got %v", err)
					}
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if content, _ := io.ReadAll(r); string(content) != "right" {
					t.Errorf("got %q", content)
				}
			})
		})
	}
}
