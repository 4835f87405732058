package function

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/function/image"
)

// one is a module of one function without parameters, of the type given, with one
// page of memory.
func one(results []byte, code ...byte) []byte {
	return assemble.File(
		assemble.Types(assemble.Type(nil, results)),
		assemble.Functions(0),
		assemble.Memory(1, 0),
		assemble.Exports(assemble.Export("handle", 0, 0), assemble.Export("memory", 2, 0)),
		assemble.Code(assemble.Body(code...)),
	)
}

// ending is how a call ended.
type ending struct {
	Kind  string
	Limit string
	Cause string // "trap", "failed", "exit" or ""
}

func endingOf(err error) ending {
	var (
		limit  *LimitError
		failed *FailedError
		left   *exit
	)
	e := ending{Kind: outboard.KindOf(err).String()}
	switch {
	case err == nil:
		e.Kind = ""
	case errors.As(err, &limit):
		e.Limit = limit.Limit
	case errors.Is(err, ErrTrap):
		e.Cause = "trap"
	case errors.As(err, &failed):
		e.Cause = "failed"
	case errors.As(err, &left):
		e.Cause = "exit"
	}
	return e
}

func limited(name string) ending { return ending{Kind: "exhausted", Limit: name} }

func ended(how string) ending { return ending{Kind: "other", Cause: how} }

// TestHostileGo calls a Go guest that misbehaves, and each time the same instance
// once more.
func TestHostileGo(t *testing.T) {
	for name, method := range methods(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testHostileGo(t, method)
		})
	}
}

func testHostileGo(t *testing.T, method image.Method) {
	r := open(t, Options{Reset: method})
	// Only the long sleep waits for the deadline: everything else must end before it on a busy machine.
	f := deploy(t, r, goGuest(t, "app"), Limits{Memory: 32 << 20, Deadline: 5 * time.Second, Fuel: 1 << 25, Response: 1 << 20})
	tests := map[string]struct {
		body string
		want ending
	}{
		"nothing":           {"echo", ending{}},
		"unknown verb":      {"no such thing", ended("failed")},
		"failure":           {"fail at noon", ended("failed")},
		"panic":             {"panic now", ended("trap")},
		"exit":              {"exit", ended("exit")},
		"endless loop":      {"spin", limited("fuel")},
		"endless growth":    {"eat", limited("memory")},
		"deep recursion":    {"recurse", limited("fuel")},
		"long sleep":        {"sleep 1h", limited("deadline")},
		"large response":    {"big", limited("response")},
		"closed streams":    {"close", ending{}},
		"growth and dirt":   {"grow", ending{}},
		"memory all over":   {"dirty words", ending{}},
		"wrong duration":    {"sleep for ever", ended("failed")},
		"words and silence": {"say hello", ending{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := call(t, f, test.body)
			if diff := cmp.Diff(test.want, endingOf(err)); diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
			if got, err := call(t, f, "count"); err != nil || got != "1" {
				t.Errorf("next call: got %q, %v", got, err)
			}
			checkFresh(t, f)
		})
	}
	if c := f.Counts(); c.Cloned != 1 || c.Rebuilt != 0 {
		t.Errorf("got %+v: one instance should have served all calls", c)
	}
}

// TestHostileCode calls modules that no compiler would write.
func TestHostileCode(t *testing.T) {
	r := open(t, Options{})
	i32 := []byte{assemble.I32}
	tests := map[string]struct {
		module []byte
		want   ending
	}{
		"endless loop":            {one(nil, 0x03, 0x40, 0x0c, 0, 0x0b), limited("deadline")},
		"endless tail call":       {one(nil, 0x12, 0), limited("deadline")},
		"endless loop of growth":  {one(nil, 0x03, 0x40, 0x41, 1, 0x40, 0, 0x1a, 0x0c, 0, 0x0b), limited("deadline")},
		"asks for 4 GiB for ever": {one(nil, 0x03, 0x40, 0x41, 0x80, 0x80, 4, 0x3f, 0, 0x6b, 0x40, 0, 0x1a, 0x0c, 0, 0x0b), limited("deadline")},
		"endless filling":         {one(nil, 0x03, 0x40, 0x41, 0, 0x41, 1, 0x41, 0x80, 0x80, 4, 0xfc, 11, 0, 0x0c, 0, 0x0b), limited("deadline")},
		"endless copying":         {one(nil, 0x03, 0x40, 0x41, 0, 0x41, 1, 0x41, 0xff, 0xff, 3, 0xfc, 10, 0, 0, 0x0c, 0, 0x0b), limited("deadline")},
		"endless random": {assemble.File(
			assemble.Types(assemble.Type([]byte{assemble.I32, assemble.I32}, i32), assemble.Type(nil, nil)),
			assemble.Imports(assemble.Import("wasi_snapshot_preview1", "random_get", 0, 0)),
			assemble.Functions(1), assemble.Memory(1, 0), assemble.Exports(assemble.Export("handle", 0, 1)),
			assemble.Code(assemble.Body(0x03, 0x40, 0x41, 0, 0x41, 0x80, 0x80, 4, 0x10, 0, 0x1a, 0x0c, 0, 0x0b)),
		), limited("deadline")},
		"unreachable":         {one(nil, 0x00), ended("trap")},
		"deep recursion":      {one(nil, 0x10, 0), ended("trap")},
		"out of bounds":       {one(i32, 0x41, 0x80, 0x80, 4, 0x28, 2, 0), ended("trap")},
		"far out of bounds":   {one(i32, 0x41, 0x7f, 0x28, 2, 0xff, 0xff, 0xff, 0xff, 0x0f), ended("trap")},
		"write out of bounds": {one(nil, 0x41, 0x7f, 0x41, 0, 0x36, 2, 0), ended("trap")},
		"fill out of bounds":  {one(nil, 0x41, 1, 0x41, 1, 0x41, 0x7f, 0xfc, 11, 0), ended("trap")},
		"division by zero":    {one(i32, 0x41, 1, 0x41, 0, 0x6d), ended("trap")},
		"large growth":        {one(i32, 0x41, 0xff, 0xff, 3, 0x40, 0, 0x1a, 0x00, 0x41, 0), limited("memory")},
		"status":              {one(i32, 0x41, 5), ended("failed")},
		"status of nothing":   {one(nil), ending{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			deadline := time.Minute
			if test.want.Limit == "deadline" {
				deadline = 50 * time.Millisecond
			}
			f := deploy(t, r, test.module, Limits{Memory: 1 << 20, Deadline: deadline})
			for range 3 {
				_, err := call(t, f, "")
				if diff := cmp.Diff(test.want, endingOf(err)); diff != "" {
					t.Errorf("%v (-want +got):\n%s", err, diff)
				}
			}
			checkFresh(t, f)
			if c := f.Counts(); c.Cloned != 1 || c.Rebuilt != 0 {
				t.Errorf("got %+v: one instance should have served all calls", c)
			}
		})
	}
}

// TestRefusedModules deploys what can't be handled and expects the reason.
func TestRefusedModules(t *testing.T) {
	r := open(t, Options{})
	tests := map[string]struct {
		module []byte
		want   string
	}{
		"no module":    {[]byte("text"), "not a WebAssembly module"},
		"component":    {[]byte("\x00asm\x0d\x00\x01\x00"), "a component: only core modules"},
		"import guess": {withImport("outboard", "secret_read"), "imports outboard.secret_read: nothing here provides it"},
		"other module": {withImport("env", "abort"), "imports env.abort: nothing here provides it"},
		"own instance": {withImport("", "handle"), "empty module name"},
		"wrong type":   {withImport("outboard", "request_size"), "signature mismatch"},
		"too large":    {assemble.File(assemble.Memory(1000, 0), assemble.Exports(assemble.Export("memory", 2, 0))), "raise the function's memory limit"},
		"data outside": {assemble.File(
			assemble.Memory(1, 0), assemble.Exports(assemble.Export("memory", 2, 0)), assemble.Data(assemble.Active(65535, 1, 2)),
		), "data segment 0 lies outside"},
		"start traps": {assemble.File(
			assemble.Types(assemble.Type(nil, nil)), assemble.Functions(0), assemble.Exports(assemble.Export("handle", 0, 0)),
			assemble.Start(0), assemble.Code(assemble.Body(0x00)),
		), "initialise"},
		"no types": {assemble.File(
			assemble.Types(assemble.Type(nil, nil)), assemble.Functions(0), assemble.Exports(assemble.Export("handle", 0, 0)), assemble.Code(assemble.Body(0x6a)),
		), "compile"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := r.Deploy(t.Context(), test.module, Settings{Name: "app/bad", Limits: Limits{Memory: 1 << 20}})
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.HasPrefix(err.Error(), "deploy app/bad: ") {
				t.Fatalf("got %v, want %q", err, test.want)
			}
			if kind := outboard.KindOf(err); kind != outboard.Invalid {
				t.Errorf("kind %v", kind)
			}
		})
	}
}

func withImport(module, name string) []byte {
	return assemble.File(
		assemble.Types(assemble.Type(nil, nil)),
		assemble.Imports(assemble.Import(module, name, 0, 0)),
		assemble.Functions(0), assemble.Exports(assemble.Export("handle", 0, 1)), assemble.Code(assemble.Body(0x10, 0)),
	)
}

func TestEntries(t *testing.T) {
	f := deployPuppet(t, open(t, Options{}), Limits{})
	for entry, want := range map[string]outboard.Kind{"nothing": outboard.NotFound, "memory": outboard.NotFound, "outboard:meter": outboard.NotFound} {
		if _, err := f.Call(t.Context(), Request{Entry: entry}); outboard.KindOf(err) != want {
			t.Errorf("%s: got %v", entry, err)
		}
	}
}

// TestCollectorRuns is about a promise of the doc comment: compiled code comes to the
// host often enough for the collector, which waits for all goroutines.
func TestCollectorRuns(t *testing.T) {
	f := deploy(t, open(t, Options{}), one(nil, 0x03, 0x40, 0x0c, 0, 0x0b), Limits{Deadline: 10 * time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		calls.Go(func() {
			if _, err := f.Call(ctx, Request{}); !errors.Is(err, context.Canceled) {
				t.Errorf("got %v", err)
			}
		})
	}
	for range 3 {
		runtime.GC()
	}
	cancel()
	calls.Wait()
}

func TestConcurrency(t *testing.T) {
	f := deploy(t, open(t, Options{}), one(nil, 0x03, 0x40, 0x0c, 0, 0x0b), Limits{Concurrency: 1, Queue: 1, Deadline: time.Minute})
	running, stop := context.WithCancel(t.Context())
	waiting, leave := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := f.Call(running, Request{}); first <- err }()
	for len(f.admission.running) == 0 {
		runtime.Gosched()
	}
	go func() { _, err := f.Call(waiting, Request{}); second <- err }()
	for f.admission.waiting.Load() == 0 {
		runtime.Gosched()
	}
	_, err := f.Call(t.Context(), Request{})
	if diff := cmp.Diff(ending{Kind: "busy", Limit: "concurrency"}, endingOf(err)); diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	leave()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting call: %v", err)
	}
	stop()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Errorf("running call: %v", err)
	}
	if c := f.Counts(); c.Refused != 1 {
		t.Errorf("got %+v", c)
	}
}

func TestOutput(t *testing.T) {
	f := deploy(t, open(t, Options{}), goGuest(t, "app"), Limits{Output: 10})
	for range 2 {
		p, err := f.Call(t.Context(), Request{Body: []byte("say hello world")})
		if err != nil {
			t.Fatal(err)
		}
		want := []Output{{[]byte("out hello "), 6}, {[]byte("err hello "), 6}}
		if diff := cmp.Diff(want, []Output{p.Stdout, p.Stderr}); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	if got, err := call(t, f, "env COLOUR"); err != nil || got != "green test arg" {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestRandom shows the trap of snapshots, and what guest.Rand is for.
func TestRandom(t *testing.T) {
	f := deploy(t, open(t, Options{}), goGuest(t, "app"), Limits{})
	var frozen, fresh []string
	for range 3 {
		got, err := call(t, f, "rand")
		if err != nil {
			t.Fatal(err)
		}
		a, b, _ := strings.Cut(got, " ")
		frozen, fresh = append(frozen, a), append(fresh, b)
	}
	if frozen[0] != frozen[1] || frozen[1] != frozen[2] {
		t.Logf("math/rand differs between calls: %v", frozen)
	}
	if fresh[0] == fresh[1] || fresh[1] == fresh[2] {
		t.Errorf("guest.Rand repeats itself: %v", fresh)
	}
}

func TestReseed(t *testing.T) {
	f := deploy(t, open(t, Options{}), reseeded(), Limits{})
	seen := make(map[string]bool)
	for range 10 {
		got, err := call(t, f, "")
		if err != nil || len(got) != 8 {
			t.Fatalf("got %q, %v", got, err)
		}
		seen[got] = true
	}
	if len(seen) != 10 {
		t.Errorf("%d different seeds in 10 calls", len(seen))
	}
}

// reseeded answers with the number that reseeding brought.
func reseeded() []byte {
	i32 := []byte{assemble.I32}
	return assemble.File(
		assemble.Types(assemble.Type([]byte{assemble.I32, assemble.I32}, i32), assemble.Type([]byte{assemble.I64}, nil), assemble.Type(nil, nil)),
		assemble.Imports(assemble.Import("outboard", "response_write", 0, 0)),
		assemble.Functions(1, 2),
		assemble.Memory(1, 1),
		assemble.Exports(assemble.Export("outboard_reseed", 0, 1), assemble.Export("handle", 0, 2)),
		assemble.Code(
			assemble.Body(0x41, 8, 0x20, 0, 0x37, 3, 0),
			assemble.Body(0x41, 8, 0x41, 8, 0x10, 0, 0x1a),
		),
	)
}

func TestClosed(t *testing.T) {
	r := open(t, Options{})
	f := deploy(t, r, one(nil), Limits{})
	if _, err := call(t, f, ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := call(t, f, ""); outboard.KindOf(err) != outboard.SessionLost {
		t.Errorf("got %v", err)
	}
}
