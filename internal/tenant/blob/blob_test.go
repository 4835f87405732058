package blob

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// fakePeers answer with the file that they have, or with another one.
type fakePeers map[outboard.NodeID]func() ([]byte, error)

func (f fakePeers) ReadFile(ctx context.Context, node outboard.NodeID, _ string) ([]byte, error) {
	if f[node] == nil { // it is silent
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return f[node]()
}

func (fakePeers) StoreFile(context.Context, outboard.NodeID, string, []byte) error { return nil }

// A file comes from any node that has its content. Nodes that can't be reached yet are
// retried; a file that no node has is reported at once.
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
		nodes func() fakePeers
		heard time.Duration
		took  time.Duration // at most
		fails bool
	}{
		"one has it":               {nodes: func() fakePeers { return fakePeers{"a": has("right")} }},
		"one has something else":   {nodes: func() fakePeers { return fakePeers{"a": has("wrong"), "b": has("right")} }},
		"all have something else":  {nodes: func() fakePeers { return fakePeers{"a": has("wrong"), "b": has("")} }, fails: true},
		"no node has it":           {nodes: func() fakePeers { return fakePeers{"a": fails(outboard.NotFound)} }, fails: true},
		"one is not in reach yet":  {nodes: func() fakePeers { return fakePeers{"a": later(time.Second)} }, took: 2 * time.Second},
		"one is never in reach":    {nodes: func() fakePeers { return fakePeers{"a": later(time.Hour)} }, took: 2 * fetchTimeout, fails: true},
		"one is silent":            {nodes: func() fakePeers { return fakePeers{"a": nil, "b": has("right")} }, took: hedgeAfter},
		"there is no other node":   {nodes: func() fakePeers { return nil }, fails: true},
		"the others are not known": {nodes: func() fakePeers { return fakePeers{"a": has("right")} }, heard: time.Second, took: 2 * time.Second},
		"they never become known":  {nodes: func() fakePeers { return nil }, heard: time.Hour, took: 2 * fetchTimeout, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, begin := c.nodes(), time.Now()
				heard := func() bool { return time.Since(begin) >= c.heard }
				f := &Store{Peers: nodes, Known: heard, Others: func() (all []outboard.NodeID) {
					for n := range nodes {
						if heard() {
							all = append(all, n)
						}
					}
					return all
				}}
				content, err := f.requestPatiently(t.Context(), right)
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
				if string(content) != "right" {
					t.Errorf("got %q", content)
				}
			})
		})
	}
}

// TestOwners: owners for which nothing was stored since a time are listed by their names.
func TestOwners(t *testing.T) {
	f := &Store{Dir: t.TempDir()}
	if owners, err := f.Owners(time.Now()); err != nil || len(owners) > 0 {
		t.Error(owners, err)
	}
	for _, owner := range []string{"app/1", "a%b/x y", "app/new"} {
		if _, err := f.SaveLocal(t.Context(), owner, []byte("x")); err != nil {
			t.Fatal(err)
		}
		if owner != "app/new" {
			if err := os.Chtimes(f.ownerDir(owner), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
	}
	owners, err := f.Owners(time.Now().Add(-time.Minute))
	slices.Sort(owners)
	if want := []string{"a%b/x y", "app/1"}; err != nil || !slices.Equal(owners, want) {
		t.Errorf("got %q, %v, want %q", owners, err, want)
	}
}

// TestOwnersAreApart: no owner's name leads to the files of others, or to the whole store.
func TestOwnersAreApart(t *testing.T) {
	f := &Store{Dir: t.TempDir()}
	for _, dir := range []string{OwnersDir, ValuesDir} {
		if err := os.MkdirAll(filepath.Join(f.Dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := f.SaveLocal(t.Context(), "tenant/app/1", []byte("kept"))
	if err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"..", ".", "", "../..", "%2E%2E", "/"} {
		if _, err := f.SaveLocal(t.Context(), owner, []byte("of "+owner)); err != nil {
			t.Errorf("save for owner %q: %v", owner, err)
		}
		if err := f.Forget(t.Context(), owner); err != nil {
			t.Errorf("forget owner %q: %v", owner, err)
		}
		if files, err := filepath.Glob(filepath.Join(f.Dir, OwnersDir, "tenant*", "*")); err != nil || len(files) != 1 {
			t.Fatalf("after owner %q the other owner has %d files, %v; want %s", owner, len(files), err, digest)
		}
	}
}
