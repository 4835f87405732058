package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/function/assemble"
)

// echo is a module that answers with its request, in the arena where it lies there, and
// asks for metadata before it does. Go's own compiler takes too long for these tests.
func echo() []byte {
	i32 := []byte{assemble.I32}
	imported := func(name string, kind byte) []byte { return assemble.Import(hostModule, name, 0, kind) }
	return assemble.File(
		assemble.Types(
			assemble.Type(nil, i32), assemble.Type([]byte{assemble.I32, assemble.I32, assemble.I32}, i32),
			assemble.Type([]byte{assemble.I32, assemble.I32}, i32), assemble.Type(nil, []byte{assemble.I64}), assemble.Type(i32, i32),
		),
		assemble.Imports(
			imported("request_size", 0), imported("request_read", 1), imported("response_write", 2),
			imported("request_offset", 3), imported("response_place", 2), imported("meta", 2),
		),
		assemble.Functions(0, 4), assemble.Memory(18, 0),
		assemble.Exports(assemble.Export("handle", 0, 6), assemble.Export("outboard_arena", 0, 7), assemble.Export("memory", 2, 0)),
		assemble.Code(
			assemble.BodyWith(i32,
				0x10, 0, 0x21, 0, // how long the request is
				0x10, 3, 0x42, 0, 0x59, 0x04, 0x40, // if it has an offset, that is the response's
				0x10, 3, 0xa7, 0x20, 0, 0x10, 4, 0x1a, 0x41, 0, 0x0f, 0x0b,
				0x41, 0, 0x41, 4, 0x10, 5, 0x1a, // metadata
				0x41, 0x80, 8, 0x20, 0, 0x41, 0, 0x10, 1, 0x1a, // read to 1024
				0x41, 0x80, 8, 0x20, 0, 0x10, 2, 0x1a, 0x41, 0, // write from there
			),
			assemble.Body(0x20, 0, 0x41, 16, 0x76, 0x40, 0, 0x41, 16, 0x74), // grow the memory by it
		),
	)
}

// newBench is a bench whose guests are all echo.
func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "ob") // paths of sockets have to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	b := &bench{Run: paired.Run{Quick: true, Dir: dir}, launch: launchHere}
	b.guests.dir = dir
	for _, pkg := range allGuests() {
		b.guests.store(pkg, echo())
	}
	return b
}

// launchHere plays roles in this process.
func launchHere(ctx context.Context, role string) ([]byte, error) {
	size, err := perform(ctx, role)
	if err != nil {
		return nil, err
	}
	return json.Marshal(size)
}

func TestTurns(t *testing.T) {
	var order strings.Builder
	next := 0.0
	counting := func(name string) measurement {
		return func(context.Context) (float64, error) {
			order.WriteString(name)
			next++
			return next, nil
		}
	}
	all, err := new(bench).turns(t.Context(), 2, counting("a"), counting("b"))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("ababab", order.String()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([][]float64{{3, 5}, {4, 6}}, [][]float64{all[0].values, all[1].values}); diff != "" {
		t.Error(diff)
	}
	broken := errors.New("broken")
	fail := func(context.Context) (float64, error) { return 0, broken }
	if _, err := new(bench).turns(t.Context(), 1, counting("a"), fail); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

func TestRows(t *testing.T) {
	r := faster("reset", "plain", []float64{2, 4, 5}, []float64{1000, 1600, 5000}, 500)
	if r.Value != 500 || !r.Holds || r.Spread != [2]float64{400, 1000} {
		t.Errorf("got %+v", r)
	}
	s := series{values: []float64{10_000}, cores: []float64{2}}
	if diff := cmp.Diff([]float64{200}, s.timePerOperation()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]float64{20_000}, s.timePerTurn()); diff != "" {
		t.Error(diff)
	}
	if got := quantile([]float64{4, 1, 3, 2}, 0.99); got != 4 {
		t.Errorf("got %v", got)
	}
}

func TestSections(t *testing.T) {
	b := newBench(t)
	for name, run := range map[string]func(context.Context) error{
		"chain": b.chain, "instances": b.instances, "launch": b.launchTimes,
	} {
		b.Report.Rows = nil
		if err := run(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, r := range b.Report.Rows {
			if !(r.Value > 0) {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
}

// TestStarts measures a function that leaves nothing, and finds out one that does.
func TestStarts(t *testing.T) {
	b := newBench(t)
	err := b.withRuntime(t.Context(), func(r *function.Runtime) error {
		for want, right := range map[string]bool{"hello": true, "other": false} {
			s, err := b.newStarts(t.Context(), r, smallGuest, "hello", want)
			if err != nil {
				return err
			}
			if err := s.plainly(t.Context()); (err == nil) != right {
				t.Errorf("plainly, want %q: %v", want, err)
			}
			if err := b.measureStarts(t.Context(), s, "echo", true); (err == nil) != right {
				t.Errorf("want %q: %v", want, err)
			}
			if err := s.close(); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	if err != nil || len(b.Report.Rows) != 4 {
		t.Errorf("%d rows, %v", len(b.Report.Rows), err)
	}
}

// TestStage sends requests and runs workflows through all that a tenant has.
func TestStage(t *testing.T) {
	b, ctx := newBench(t), t.Context()
	a, err := b.app(ctx, stepsApp+"routes:\n  - {path: /echo, methods: [POST], function: pass}\n", map[string]string{"pass.wasm": passGuest})
	if err != nil {
		t.Fatal(err)
	}
	a.files["pure.yaml"], a.files["noted.yaml"] = fourSteps("pure", "pass"), fourSteps("noted", "noted")
	err = b.withStage(ctx, a, func(s *testNode) error {
		l := load{addr: s.addr(), path: "/steps/echo", body: []byte("{}"), want: []byte("{}"), connections: 2, turn: 10 * time.Millisecond}
		for _, open := range []func(context.Context, load) (caller, error){newLean, newFull} {
			if rate, err := l.through(open)(ctx); err != nil || rate <= 0 {
				t.Errorf("%v requests/s, %v", rate, err)
			}
		}
		l.want = []byte("something else")
		if _, err := l.through(newLean)(ctx); err == nil {
			t.Error("a wrong answer is taken")
		}
		for _, workflow := range []string{"pure", "noted"} {
			hops, took, err := s.hops(ctx, workflow, 2)
			if err != nil || len(hops) != 6 || len(took) != 2 {
				t.Errorf("%s: %v, %v, %v", workflow, hops, took, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestHops(t *testing.T) {
	at := time.Unix(1, 0)
	step := func(begin, took time.Duration) client.Step {
		return client.Step{Kind: "call", Started: at.Add(begin), Took: client.Duration(took)}
	}
	const ms = time.Millisecond
	steps := []client.Step{step(6*ms, ms), {Kind: "do"}, step(0, 2*ms), step(3*ms, ms), step(9*ms, ms)}
	got, err := hopsOf(steps)
	if diff := cmp.Diff([]float64{1, 2, 2}, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if _, err := hopsOf(steps[:3]); err == nil {
		t.Error("two calls of four are taken")
	}
}

func TestReadHead(t *testing.T) {
	for text, want := range map[string][2]int{
		"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nX: y\r\n\r\n": {200, 7},
		"HTTP/1.1 409 Conflict\r\nContent-Length:0\r\n\r\n":    {409, 0},
		"HTTP/1.1 200 OK\r\nX: y\r\n\r\n":                      {},
		"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n":         {},
		"HTTP/1.1 20\r\n\r\n":                                  {},
		"SSH-2.0\r\n":                                          {},
		"":                                                     {},
	} {
		status, size, err := readHead(bufio.NewReader(strings.NewReader(text)))
		if failed := err != nil; failed != (want[0] == 0) || !failed && [2]int{status, size} != want {
			t.Errorf("%q: %d, %d, %v", text, status, size, err)
		}
	}
}

func TestProportional(t *testing.T) {
	got, err := proportional([]byte("00-ff ---p [rollup]\nRss:  200 kB\nPss:                 100 kB\nPss_Dirty: 1 kB\n"))
	if err != nil || got != 100<<10 {
		t.Errorf("got %d, %v", got, err)
	}
	if _, err := proportional([]byte("Rss: 1 kB\n")); err == nil {
		t.Error("no size is taken")
	}
}

// TestExamples has the manifests of the examples that are measured.
func TestExamples(t *testing.T) {
	b := newBench(t)
	for name, files := range map[string]int{"enrollment": 1, "thumbnails": 5} {
		a, err := b.example(t.Context(), name)
		if err != nil || len(a.files) != files {
			t.Errorf("%s: %d files, %v", name, len(a.files), err)
		}
	}
}

// TestAlbum has the native program make the same thumbnails as its code does here.
func TestAlbum(t *testing.T) {
	b := newBench(t)
	a, err := b.newAlbum(t.Context(), 2, 400, 300)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.byProgram(1)(t.Context()); err != nil {
		t.Fatal(err)
	}
	var small [][]byte
	for _, name := range a.names {
		content, err := os.ReadFile(filepath.Join(a.to, name))
		if err != nil {
			t.Fatal(err)
		}
		small = append(small, content)
	}
	if err := os.RemoveAll(a.to); err != nil {
		t.Fatal(err)
	}
	if err := a.compare(small); err != nil {
		t.Error(err)
	}
	small[1] = small[0]
	if a.compare(small) == nil {
		t.Error("a wrong thumbnail is taken")
	}
}

// A faculty is an HTTP handler that enrolls as the example does, but for its fault.
type faculty struct {
	mu       sync.Mutex
	fault    string
	register register
}

func newFaculty(t term, fault string) *faculty {
	f := &faculty{fault: fault, register: register{free: map[string]int{}, students: map[string]map[string]bool{}, requests: map[string]bool{}}}
	for i := range t.courses {
		f.register.free[t.course(i)], f.register.students[t.course(i)] = t.seats(i), map[string]bool{}
	}
	return f
}

func (f *faculty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/")
	course, name, id := parts[3], parts[5], r.Header.Get("Request-Id")
	answer, in := `{"course":"`+course+`","student":"`+name+`"}`, &f.register
	status := http.StatusCreated
	switch {
	case in.requests[id] && f.fault != "twice":
		status = http.StatusOK
	case in.free[course] == 0 && f.fault != "oversold":
		status, answer = http.StatusConflict, "{}"
	default:
		in.free[course]--
		in.students[course][name], in.requests[id] = true, f.fault != "forgets"
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, answer)
}

// TestRush finds every promise that is broken, in the process and over connections.
func TestRush(t *testing.T) {
	const enough = 500 // requests, so that each course is asked for often
	for fault, clean := range map[string]bool{"": true, "twice": false, "oversold": false, "forgets": false} {
		o := &enrollmentLoad{term: term{courses: 4, scarce: 2, few: 3, many: 1 << 40}}
		f := newFaculty(o.term, fault)
		d, err := serveLoopback(t.Context(), f)
		if err != nil {
			t.Fatal(err)
		}
		o.at = d.addr
		open := map[bool]func(context.Context, int) (enroller, error){
			true: func(ctx context.Context, _ int) (enroller, error) {
				return &handlerClient{ctx: ctx, handler: f, term: o.term}, nil
			},
			false: o.overHTTP,
		}
		for _, inProcess := range []bool{true, false} {
			for most := o.count + enough; o.count < most; {
				if _, err := o.runClients(open[inProcess], 8, 20*time.Millisecond)(t.Context()); err != nil {
					t.Fatalf("%s: %v", fault, err)
				}
			}
		}
		o.close()
		if err := d.close(); err != nil {
			t.Error(err)
		}
		found := o.term.auditAnswers(o.seated, f.register)
		if (found == audit{} && len(o.wrong) == 0) != clean {
			t.Errorf("%q: %+v, wrong answers %.3v", fault, found, o.wrong)
		}
	}
}

func TestAudit(t *testing.T) {
	tm := term{courses: 2, scarce: 1, few: 1, many: 10}
	right := func() register {
		return register{
			free:     map[string]int{"c0": 0, "c1": 8},
			students: map[string]map[string]bool{"c0": {"s2": true}, "c1": {"s1": true, "s3": true}},
			requests: map[string]bool{"r1": true, "r2": true, "r3": true},
		}
	}
	for name, tt := range map[string]struct {
		change func(r *register, told *[]int)
		want   audit
	}{
		"right": {func(*register, *[]int) {}, audit{}},
		"sold twice": {func(r *register, told *[]int) {
			r.students["c0"]["s4"], r.requests["r4"] = true, true
			*told = append(*told, 4)
		}, audit{oversold: 1}},
		"below zero":   {func(r *register, _ *[]int) { r.free["c1"] = -1 }, audit{oversold: 10}},
		"counted more": {func(_ *register, told *[]int) { *told = append(*told, 3) }, audit{twice: 1}},
		"not kept":     {func(r *register, _ *[]int) { delete(r.requests, "r1") }, audit{missing: 1}},
		"not told":     {func(_ *register, told *[]int) { *told = (*told)[:2] }, audit{unknown: 1}},
	} {
		r, told := right(), []int{1, 2, 3}
		tt.change(&r, &told)
		if diff := cmp.Diff(tt.want, tm.auditAnswers(told, r), cmp.AllowUnexported(audit{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
