package llama

import (
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/model/engine"
)

func TestChooseObeysFilters(t *testing.T) {
	logits := []float32{0, 1, 2, 3, 4, 5}
	for name, c := range map[string]struct {
		sampling engine.Sampling
		possible []int32
	}{
		"greedy":  {engine.Sampling{}, []int32{5}},
		"top k":   {engine.Sampling{Temperature: 5, TopK: 2}, []int32{4, 5}},
		"top p":   {engine.Sampling{Temperature: 1, TopP: 0.5}, []int32{5}},
		"min p":   {engine.Sampling{Temperature: 1, MinP: 0.3}, []int32{4, 5}},
		"bias":    {engine.Sampling{Bias: map[int32]float32{1: 10, 100: 50}}, []int32{1}},
		"penalty": {engine.Sampling{PresencePenalty: 3}, []int32{4}},
	} {
		seen := map[int32]bool{}
		for seed := range uint64(300) {
			var s sampler
			c.sampling.Seed = seed
			seen[s.choose(logits, []int32{5}, &c.sampling)] = true
		}
		for id := range seen {
			if !slices.Contains(c.possible, id) {
				t.Errorf("%s: token %d was chosen", name, id)
			}
		}
		if len(seen) != len(c.possible) {
			t.Errorf("%s: chose %v of %v", name, seen, c.possible)
		}
	}
}

func TestPrefixTreeTellsItsPrefixes(t *testing.T) {
	tokens := make([]int32, 4*engine.PrefixBlock)
	branch := append(slices.Clone(tokens[:2*engine.PrefixBlock]), slices.Repeat([]int32{1}, engine.PrefixBlock)...)
	tree := newPrefixTree(0, 1000)
	tree.insert(0, "", tokens)
	tree.insert(1, "", branch)
	has := func(tokens []int32) bool {
		hashes, all := engine.PrefixHashes("", tokens, 100), firstPrefixes(tree.prefixes())
		return !slices.ContainsFunc(hashes, func(h uint32) bool { return !slices.Contains(all, h) })
	}
	if n := len(firstPrefixes(tree.prefixes())); n != 5 || !has(tokens) || !has(branch) {
		t.Errorf("%d prefixes, with both: %t, %t", n, has(tokens), has(branch))
	}
	tree.match("", branch)
	oldest := tree.oldest()
	tree.evict(oldest)
	if oldest != 0 || has(tokens) || !has(branch) {
		t.Errorf("after the eviction: %t, %t", has(tokens), has(branch))
	}
}

func TestUniformIsUniform(t *testing.T) {
	var sum float64
	const n = 10000
	for i := range uint64(n) {
		v := uniform(i%7, i)
		if v < 0 || v >= 1 {
			t.Fatalf("uniform = %v", v)
		}
		sum += v
	}
	if mean := sum / n; math.Abs(mean-0.5) > 0.02 {
		t.Errorf("mean %v", mean)
	}
}

// TestTextStreamJoins splits texts anywhere, also within UTF-8 sequences and stop texts.
func TestTextStreamJoins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOfN(rapid.SampledFrom([]rune("ab€😀 ")), 0, 30, -1).Draw(t, "text")
		stop := rapid.StringOfN(rapid.SampledFrom([]rune("ab€")), 1, 3, -1).Draw(t, "stop")
		s := textStream{stop: []string{stop}}
		var got strings.Builder
		for rest := text; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			part := s.push(rest[:n])
			if strings.ContainsRune(part, '\ufffd') {
				t.Fatalf("%q was cut within a sequence", part)
			}
			got.WriteString(part)
			rest = rest[n:]
		}
		got.WriteString(s.flush())
		want, _, stopped := strings.Cut(text, stop)
		if got.String() != want || s.stopped != stopped {
			t.Fatalf("got %q (stopped: %v), want %q (%v)", got.String(), s.stopped, want, stopped)
		}
	})
}

// TestPrefixTree compares the tree with a list of its sequences. A client finds nothing of another
// one's prompts there.
func TestPrefixTree(t *testing.T) {
	type kept struct {
		scope  string
		tokens []int32
	}
	rapid.Check(t, func(t *rapid.T) {
		tree, list := newPrefixTree(0, 1000), map[int32]kept{}
		for id := range int32(20) {
			tokens := rapid.SliceOfN(rapid.Int32Range(0, 2), 1, 8).Draw(t, "tokens")
			scope := rapid.SampledFrom([]string{"", "key/a", "key/b"}).Draw(t, "scope")
			holder, n := tree.match(scope, tokens)
			longest := 0
			for _, other := range list {
				if other.scope == scope {
					longest = max(longest, common(other.tokens, tokens))
				}
			}
			if n != longest || n > 0 && (common(list[holder].tokens, tokens) != n || list[holder].scope != scope) {
				t.Fatalf("match(%q, %v) = %d, %d of %v, longest is %d", scope, tokens, holder, n, list, longest)
			}
			if n < len(tokens) {
				for _, redundant := range tree.insert(id, scope, tokens) {
					delete(list, redundant)
				}
				list[id] = kept{scope, tokens}
			}
			if rapid.IntRange(0, 3).Draw(t, "evict") == 0 {
				oldest := tree.oldest()
				tree.evict(oldest)
				delete(list, oldest)
			}
			for id, k := range list {
				shared := 0
				for other, o := range list {
					if other != id && o.scope == k.scope {
						shared = max(shared, common(o.tokens, k.tokens))
					}
				}
				if scope, tokens, own := tree.sequence(id); scope != k.scope || !slices.Equal(tokens, k.tokens) || own != len(tokens)-shared {
					t.Fatalf("sequence %d is %v in %q, %d of its own; want %v in %q, %d", id, tokens, scope, own, k.tokens, k.scope, len(k.tokens)-shared)
				}
			}
			prefixes, scopes := map[string]bool{}, map[string]bool{}
			for _, k := range list {
				scopes[k.scope] = true
				for i := range k.tokens {
					prefixes[k.scope+" "+string(k.tokens[:i+1])] = true
				}
			}
			if len(tree.roots) != len(scopes) {
				t.Fatalf("%d trees of %d scopes", len(tree.roots), len(scopes))
			}
			if tree.cells != len(prefixes) || len(tree.ends) != len(list) {
				t.Fatalf("%d cells of %d sequences, want %d of %d", tree.cells, len(tree.ends), len(prefixes), len(list))
			}
		}
	})
}

func TestUnknownLayoutsAreRefused(t *testing.T) {
	good, context := make(params, 80), make(params, 160)
	if _, err := checkLayout("0.6.0", good, context); err == nil || !strings.Contains(err.Error(), `"0.6.0"`) {
		t.Errorf("error %v does not name the version", err)
	}
	if _, err := checkLayout("0.5.0", good, make(params, 168)); err == nil || !strings.Contains(err.Error(), "168") {
		t.Errorf("error %v of another size", err)
	}
	if _, err := checkLayout("0.5.0", good, context); err == nil || !strings.Contains(err.Error(), "n_ctx") {
		t.Errorf("error %v of other defaults", err)
	}
}
