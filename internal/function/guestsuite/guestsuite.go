// Package guestsuite tests the libraries for functions in every language. A language's test
// builds a function whose verbs use the whole library, and passes it to the suite.
package guestsuite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/guest/go/guesttest"
	"github.com/outboard-run/outboard/internal/function"
)

// Language is a test function in one language, and its error texts.
type Language struct {
	Module []byte
	// Taken and Full are the errors of bookings by a person who has a seat already, and
	// when no seat is free.
	Taken, Full string
}

// Run runs the tests that all languages share, and returns the function for further tests.
func Run(t *testing.T, l Language) *function.Function {
	t.Helper()
	f := deploy(t, l.Module)
	t.Run("resources", func(t *testing.T) { l.resources(t, f) })
	t.Run("arena", func(t *testing.T) { arena(t, f) })
	t.Run("random", func(t *testing.T) { random(t, f) })
	return f
}

func deploy(t *testing.T, module []byte) *function.Function {
	t.Helper()
	r, err := function.Open(t.Context(), function.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	f, err := r.Deploy(t.Context(), module, function.Settings{Name: "shop/all"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// stock returns the resources that the function may import.
func stock(t *testing.T) resources {
	t.Helper()
	host := guesttest.Start(t)
	host.Bucket("seats").Set("free", "2")
	gpu := host.Device("gpu")
	gpu.Info, gpu.Kernels["upper"] = `{"name": "toy"}`, upper
	host.Secrets["token"] = []byte("hush")
	host.Functions["price"] = func(b []byte) ([]byte, error) {
		if len(b) == 0 {
			return nil, errors.New("price of what?")
		}
		return append(b, '!'), nil
	}
	return resources{host, newArena(t, 1<<16)}
}

// upper is a kernel that converts its first buffer to capitals, and adds the number of items
// to its scalar argument.
func upper(l guesttest.Launch) {
	copy(l.Args[0], bytes.ToUpper(l.Args[0]))
	if len(l.Args) == 4 && len(l.Args[3]) == 16 && l.Local[0] == 1 {
		binary.LittleEndian.PutUint32(l.Args[1], binary.LittleEndian.Uint32(l.Args[2])+uint32(l.Global[0]))
	}
}

func newArena(t *testing.T, size outboard.Bytes) *function.Arena {
	t.Helper()
	a, err := function.NewArena(size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() }) // the test does not depend on it
	return a
}

func (l *Language) resources(t *testing.T, f *function.Function) {
	with := stock(t)
	for _, tt := range []struct{ request, want, failure string }{
		{"count", "1", ""},
		{"count", "1", ""},
		{"part äö", "äö", ""},
		{"copy äö", "äö", ""}, // without an arena it is ordinary memory
		{"fail no tide", "", "no tide"},
		{"call tea", "tea!", ""},
		{"call", "", "price of what?"},
		{"secret token", "hush", ""},
		{"secret other", "", "the test's host has none"},
		{"import secret:token", "imported", ""},
		{"import moon:a", "", "the test's host has none"},
		{"book ann", "1 0", ""},
		{"book ann", "", l.Taken},
		{"book bob", "0 0", ""},
		{"book cid", "", l.Full},
		{"arena hello", "65536 \x00\x00\x00\x00", ""},
		{"arena other", "65536 hell", ""},
		{"kernel harbour", "HARBOUR 107 {\"name\": \"toy\"}", ""},
		{"kernel", "", "has no size that a buffer may have"},
		{"import device:gpu", "imported", ""},
		{"import device:other", "", "the test's host has none"},
		{"meta method", "value of method", ""},
		{"meta other", "", "none"},
		{"turn", "", "no verb turn"},
	} {
		p, err := f.Call(t.Context(), function.Request{
			Body: []byte(tt.request), Resources: with,
			Meta: func(name string) (string, bool) { return "value of " + name, name == "method" },
		})
		switch {
		case tt.failure != "" && (err == nil || !strings.Contains(err.Error(), tt.failure)):
			t.Errorf("%s: got %v, want %s", tt.request, err, tt.failure)
		case tt.failure == "" && (err != nil || string(p.Body) != tt.want):
			t.Errorf("%s: got %q, %v, want %q", tt.request, p.Body, err, tt.want)
		}
	}
	for _, key := range []string{"recent", "last"} {
		if got := with.Bucket("seats").Value(key); got != "bob" {
			t.Errorf("%s: got %q", key, got)
		}
	}
}

// arena passes values by their offset.
func arena(t *testing.T, f *function.Function) {
	a := newArena(t, 1<<20)
	call := func(q function.Request, want string) function.Extent {
		t.Helper()
		q.Arena = a
		p, err := f.Call(t.Context(), q)
		if err != nil || p.Place == nil {
			t.Fatalf("got %+v, %v", p, err)
		}
		if got, err := a.Slice(*p.Place); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
		return *p.Place
	}
	first := call(function.Request{Body: []byte("copy part hello")}, "part hello")
	second := call(function.Request{Place: &first}, "hello")
	if second.Offset != first.Offset+len("part ") {
		t.Errorf("a part of what lies at %+v was copied to %+v", first, second)
	}
}

// random checks that each call gets another number, although each begins with the same memory.
func random(t *testing.T, f *function.Function) {
	seen := map[string]bool{}
	for range 2 {
		p, err := f.Call(t.Context(), function.Request{Body: []byte("random")})
		if err != nil || len(p.Body) == 0 {
			t.Fatalf("got %q, %v", p.Body, err)
		}
		seen[string(p.Body)] = true
	}
	if len(seen) != 2 {
		t.Errorf("got %v twice", seen)
	}
}
