package as_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/guest/go/guesttest"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/need"
)

func deploy(t *testing.T) *function.Function {
	t.Helper()
	_, err := os.Stat("node_modules/.bin/asc")
	need.That(t, "asc", err == nil, "run npm ci in guest/as (`make test` does)")
	need.Program(t, "node")
	file := filepath.Join(t.TempDir(), "all.wasm")
	build := exec.CommandContext(t.Context(), "node_modules/.bin/asc", "testdata/all.ts", "-o", file, "-O3", "--runtime", "stub",
		"--use", "abort=outboard/abort", "--use", "seed=outboard/seed")
	if out, err := build.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("%v: %s", err, out)
	}
	module, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, err := function.Open(t.Context(), function.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := r.Deploy(t.Context(), module, function.Settings{Name: "shop/all"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// resources lets a function import what a test's host has.
type resources struct {
	*guesttest.Host
	arena *function.Arena
}

type resource struct {
	*guesttest.Host
	handle int32
}

func (r resources) Import(_ context.Context, name string) (function.Resource, error) {
	if name == "arena:photos" {
		return &function.SharedArena{Arena: r.arena}, r.arena.Hold()
	}
	handle, err := r.Host.Import(name)
	if err != nil {
		return nil, err
	}
	switch base := (resource{r.Host, handle}); {
	case strings.HasPrefix(name, "function:"):
		return callee{base}, nil
	case strings.HasPrefix(name, "bucket:"):
		return bucket{base}, nil
	default:
		return secret{base}, nil
	}
}

func (r resource) Release() { r.Drop(r.handle) }

type callee struct{ resource }

func (c callee) Call(_ context.Context, q function.Request) (function.Response, error) {
	b, err := c.Host.Call(c.handle, q.Body)
	return function.Response{Body: b}, err
}

type bucket struct{ resource }

func (b bucket) Get(_ context.Context, key string) ([]byte, uint64, error) {
	value, revision, err := b.Host.Get(b.handle, key)
	return value, uint64(revision), err
}

func (b bucket) Txn(_ context.Context, ops []byte) (int, error) { return b.Host.Txn(b.handle, ops) }

type secret struct{ resource }

func (s secret) Bytes() []byte {
	b, _ := s.Secret(s.handle)
	return b
}

func TestFunction(t *testing.T) {
	f := deploy(t)
	t.Run("calls", func(t *testing.T) { testCalls(t, f) })
	t.Run("arena", func(t *testing.T) { testArena(t, f) })
	t.Run("words", func(t *testing.T) { testWords(t, f) })
}

func testCalls(t *testing.T, f *function.Function) {
	host := guesttest.Start(t)
	host.Bucket("seats").Set("free", "2")
	host.Secrets["token"] = []byte("hush")
	host.Functions["price"] = func(b []byte) ([]byte, error) {
		if len(b) == 0 {
			return nil, errors.New("price of what?")
		}
		return append(b, '!'), nil
	}
	shared, err := function.NewArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	for _, tt := range []struct{ request, want, failure string }{
		{"count", "1", ""},
		{"count", "1", ""},
		{"part äö", "äö", ""},
		{"copy äö", "äö", ""},
		{"array abc", "cba", ""},
		{"fail no tide", "", "no tide"},
		{"call tea", "tea!", ""},
		{"call", "", "price of what?"},
		{"secret token", "hush", ""},
		{"secret other", "", "the test's host has none"},
		{"drop secret:token", "dropped", ""},
		{"drop moon:a", "", "the test's host has none"},
		{"book ann", "1 0", ""},
		{"book ann", "", "1 0"},
		{"book bob", "0 0", ""},
		{"book cid", "", "1 1"},
		{"arena hello", "65536 \x00\x00\x00\x00", ""},
		{"arena other", "65536 hell", ""},
		{"meta method", "value of method", ""},
		{"meta other", "", "none"},
		{"turn", "", "no verb turn"},
	} {
		p, err := f.Call(t.Context(), function.Request{
			Body: []byte(tt.request), Resources: resources{host, shared},
			Meta: func(name string) (string, bool) { return "value of " + name, name == "method" },
		})
		got := string(p.Body)
		switch {
		case tt.failure == "" && err != nil:
			t.Errorf("%s: %v", tt.request, err)
		case tt.failure != "" && (err == nil || !strings.Contains(err.Error(), tt.failure)):
			t.Errorf("%s: got %v, want %s", tt.request, err, tt.failure)
		case tt.failure == "" && got != tt.want:
			t.Errorf("%s: got %q, want %q", tt.request, got, tt.want)
		}
	}
	if got := host.Bucket("seats").Value("recent"); got != "bob" {
		t.Errorf("the one of the last hour was %q", got)
	}
	if got := host.Bucket("seats").Value("last"); got != "bob" {
		t.Errorf("the last one was %q", got)
	}
}

// testArena hands a value on by its place.
func testArena(t *testing.T, f *function.Function) {
	arena, err := function.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	first, err := f.Call(t.Context(), function.Request{Body: []byte("copy part hello"), Arena: arena})
	if err != nil || first.Place == nil {
		t.Fatalf("got %+v, %v", first, err)
	}
	second, err := f.Call(t.Context(), function.Request{Place: first.Place, Arena: arena})
	if err != nil || second.Place == nil {
		t.Fatalf("got %+v, %v", second, err)
	}
	if got, err := arena.At(*second.Place); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
}

// testWords looks at what comes out by the side.
func testWords(t *testing.T, f *function.Function) {
	call := func(request string) (function.Response, error) {
		return f.Call(t.Context(), function.Request{Body: []byte(request)})
	}
	p, err := call("throw a storm")
	if !errors.Is(err, function.ErrTrap) || !strings.Contains(string(p.Stderr.Text), "testdata/all.ts:") || !strings.HasSuffix(string(p.Stderr.Text), ": a storm\n") {
		t.Errorf("got %v, %q", err, p.Stderr.Text)
	}
	if _, err := call("bounds abc"); !errors.Is(err, function.ErrTrap) {
		t.Errorf("got %v", err)
	}
	if p, err := call("log all is well"); err != nil || string(p.Stderr.Text) != "all is well\n" {
		t.Errorf("got %v, %q", err, p.Stderr.Text)
	}
	a, _ := call("random")
	if b, err := call("random"); err != nil || bytes.Equal(a.Body, b.Body) {
		t.Errorf("got %s and %s, %v", a.Body, b.Body, err)
	}
}
