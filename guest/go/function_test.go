package guest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/guest/go/guesttest"
	"github.com/outboard-run/outboard/internal/function"
)

func deploy(t *testing.T, source string) *function.Function {
	t.Helper()
	file := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, source)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
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

// TestFunction is the package as functions have it, in WebAssembly.
func TestFunction(t *testing.T) {
	f := deploy(t, "./testdata/all")
	for name, test := range map[string]func(*testing.T, *function.Function){
		"resources": testResources, "arena": testArena, "full arena": testArenaFull, "garbage": testGarbage,
		"sizes": testSizes,
	} {
		t.Run(name, func(t *testing.T) { test(t, f) })
	}
}

// testSizes sends requests that have room in what is kept for them, and others.
func testSizes(t *testing.T, f *function.Function) {
	for _, size := range []int{5, 6, 4094, 4095, 4096, 4097, 4098, 8192, 100_000} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7 / 3)
		}
		copy(body, "heap ")
		for range 2 {
			p, err := f.Call(t.Context(), function.Request{Body: body})
			if err != nil || !bytes.Equal(p.Body, body) {
				t.Errorf("of %d bytes came %d back: %v", size, len(p.Body), err)
			}
		}
	}
}

func testResources(t *testing.T, f *function.Function) {
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
	call := func(text string) (string, error) {
		p, err := f.Call(t.Context(), function.Request{
			Body: []byte(text), Resources: resources{host, shared},
			Meta: func(name string) (string, bool) { return "value of " + name, name == "method" },
		})
		return string(p.Body), err
	}
	for _, tt := range []struct{ request, want, failure string }{
		{"heap a", "heap a", ""},
		{"copy a", "a", ""}, // without an arena it is ordinary memory
		{"part a", "a", ""},
		{"call tea", "tea!", ""},
		{"call", "", "price of what?"},
		{"bucket ann", "1 2 0", ""},
		{"bucket ann", "", `operation 0 does not hold: "ann" is missing`},
		{"bucket bob", "0 4 0", ""},
		{"bucket cid", "", `operation 1 does not hold: add -1 to "free", at least 0`},
		{"secret token", "hush", ""},
		{"secret other", "", "the test's host has none"},
		{"import moon:a", "", "the test's host has none"},
		{"arena hello", "65536 \x00\x00\x00\x00", ""},
		{"arena other", "65536 hell", ""},
		{"meta method", "value of method true", ""},
		{"meta other", " false", ""},
	} {
		got, err := call(tt.request)
		switch {
		case tt.failure == "" && err != nil:
			t.Errorf("%s: %v", tt.request, err)
		case tt.failure != "" && (err == nil || !strings.Contains(err.Error(), tt.failure)):
			t.Errorf("%s: got %v, want %s", tt.request, err, tt.failure)
		case tt.failure == "" && got != tt.want:
			t.Errorf("%s: got %q, want %q", tt.request, got, tt.want)
		}
	}
	if a, _ := call("rand"); a == "" {
		t.Error("no random number")
	} else if b, _ := call("rand"); a == b {
		t.Errorf("got %s twice", a)
	}
}

// testArena hands values on by their place.
func testArena(t *testing.T, f *function.Function) {
	arena, err := function.NewArena(32 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	call := func(q function.Request) function.Response {
		t.Helper()
		q.Arena = arena
		p, err := f.Call(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	at := func(p *function.Place) string {
		t.Helper()
		if p == nil {
			t.Fatal("the value was copied")
		}
		b, err := arena.At(*p)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	first := call(function.Request{Body: []byte("copy part hello")})
	if got := at(first.Place); got != "part hello" {
		t.Errorf("got %q", got)
	}
	second := call(function.Request{Place: first.Place})
	if got := at(second.Place); got != "hello" || second.Place.Offset != first.Place.Offset+len("part ") {
		t.Errorf("got %q at %+v after %+v", got, second.Place, first.Place)
	}
	if p := call(function.Request{Body: []byte("heap a")}); string(p.Body) != "heap a" || p.Place != nil {
		t.Errorf("got %q, %+v", p.Body, p.Place)
	}
	if p := call(function.Request{Body: []byte("align")}); string(p.Body) != "0 0 3 5" {
		t.Errorf("got %q", p.Body)
	}
}

// testArenaFull goes on in ordinary memory.
func testArenaFull(t *testing.T, f *function.Function) {
	arena, err := function.NewArena(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	p, err := f.Call(t.Context(), function.Request{Body: []byte("fill"), Arena: arena})
	if diff := cmp.Diff("41943040", string(p.Body)); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

// testGarbage has the collector run beside a window: it neither moves nor counts it.
func testGarbage(t *testing.T, f *function.Function) {
	arena, err := function.NewArena(8 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	p, err := f.Call(t.Context(), function.Request{Body: []byte("garbage"), Arena: arena})
	if err != nil {
		t.Fatal(err)
	}
	if p.Cost.Memory > 110<<20 {
		t.Errorf("the memory became %v large, %s MiB of it Go's", p.Cost.Memory, p.Body)
	}
}
