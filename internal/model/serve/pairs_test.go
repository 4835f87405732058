package serve_test

import (
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// A version that does not repeat its recorded pairs gets no requests: the version before goes on.
func TestRecordedPairs(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.want("a1")
	push := func(content, pairs string) error {
		t.Helper()
		v, err := b.repository.Push(t.Context(), repository.Version{
			Name: "m", Engine: "fake", Main: "m.fake", Config: repository.Config{Pairs: "pairs.json"},
			Files: map[string]repository.File{"m.fake": {Digest: content, Size: 1}, "pairs.json": {Digest: pairs, Size: 1}},
		})
		if err == nil {
			err = b.Await(t.Context(), "m", v.Number)
		}
		if err != nil {
			t.Fatal(err)
		}
		return b.Load(t.Context(), "m", "")
	}
	for name, c := range map[string]struct{ pairs, reason string }{
		"another result": {`[{"inputs":{"x":[0]},"outputs":{"y":[98]}},{"inputs":{"x":[2]},"outputs":{"y":[97]}}]`, "pair 2: output \"y\" differs"},
		"another shape":  {`[{"inputs":{"x":[0]},"outputs":{"y":[98,98]}}]`, "was recorded"},
		"another output": {`[{"inputs":{"x":[0]},"outputs":{"z":[98]}}]`, "it has y"},
		"a text":         {`[{"prompt":"a","text":"b"}]`, "want inputs and outputs"},
		"no input":       {`[{"outputs":{"y":[98]}}]`, "want either"},
		"no JSON":        {`[{`, "recorded pairs"},
	} {
		if err := push("b", c.pairs); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%s: %v, want %s", name, err, c.reason)
		}
		if got, err := b.infer(0); err != nil || got != "a1" {
			t.Errorf("%s: %q answered, %v", name, got, err)
		}
	}
	if err := push("b", `[{"inputs":{"x":[0]},"outputs":{"y":[98]}}]`); err != nil {
		t.Fatal(err)
	}
	if got, err := b.infer(0); err != nil || !strings.HasPrefix(got, "b") {
		t.Errorf("%q answered, %v", got, err)
	}
}
