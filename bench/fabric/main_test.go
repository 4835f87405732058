package main

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/bench/paired"
)

// TestMain lets the test binary play the roles, as the command does.
func TestMain(m *testing.M) {
	if status, is := roleStatus(); is {
		os.Exit(status)
	}
	if text := os.Getenv(roleVariable); text != "" {
		os.Exit(roleMain(text))
	}
	os.Exit(m.Run())
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "ob")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return &bench{Run: paired.Run{Quick: true, Dir: dir}, launch: launchHere}
}

// launchHere plays roles in this process: to start many takes long under -race.
func launchHere(ctx context.Context, text string) (io.WriteCloser, io.Reader, func() error, error) {
	in, input := io.Pipe()
	output, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := runRole(ctx, text, in, out)
		done <- errors.Join(err, in.Close(), out.CloseWithError(io.EOF))
	}()
	return input, output, func() error { return <-done }, nil
}

// newGroup is a group and its context, which outlives the test's: processes end when
// they are told to.
func newGroup(t *testing.T) (*processGroup, context.Context) {
	t.Helper()
	f := &processGroup{bench: newBench(t)}
	t.Cleanup(func() {
		if err := f.close(); err != nil {
			t.Error(err)
		}
	})
	return f, context.WithoutCancel(t.Context())
}

// TestTopologies makes some calls in the topologies of all rows.
func TestTopologies(t *testing.T) {
	f, ctx := newGroup(t)
	local, err := f.localTopologies(ctx, large)
	if err != nil {
		t.Fatal(err)
	}
	secure, err := f.tlsTopologies(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range slices.Concat(local, secure) {
		for _, size := range []int{64, 32 << 10} {
			if _, err := turns(ctx, 1, load{Call: "echo", Size: size, InFlight: 1, Seconds: 0.01}, w); err != nil {
				t.Errorf("%s, %d bytes: %v", w.name, size, err)
			}
		}
	}
	var r mixedResult
	if err := secure[0].client.do("mixed", mixedLoad{Size: 64, Rate: 100, Bytes: 4 << 20, Chunk: 1 << 20, Seconds: 0.01}, &r); err != nil {
		t.Error(err)
	}
}

// TestPassages makes a call and streams of all kinds by each of our ways through nodes, beside held
// streams.
func TestPassages(t *testing.T) {
	f, ctx := newGroup(t)
	for _, p := range passages() {
		w, err := f.passageTopology(ctx, p.name)
		if err != nil {
			t.Fatalf("%s: %v", p.name, err)
		}
		if err := w.client.do("hold", 3, new(float64)); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
		for _, call := range []string{"echo", "upload", "download", "pingpong"} {
			if _, err := turns(ctx, 1, load{Call: call, Size: 100, InFlight: 2, Seconds: 0.01}, w); err != nil {
				t.Errorf("%s, %s: %v", p.name, call, err)
			}
		}
		if err := w.client.do("hold", 0, new(float64)); err != nil {
			t.Errorf("%s: %v", p.name, err)
		}
	}
}

// TestProcess makes some calls from one process to another.
func TestProcess(t *testing.T) {
	f, ctx := newGroup(t)
	f.bench.launch = launchProcess
	w, err := f.echoTopology(ctx, plain, "grpc", stackGRPC, "")
	if err != nil {
		t.Fatal(err)
	}
	all, err := turns(ctx, 1, load{Call: "echo", Size: 64, InFlight: 1, Seconds: 0.01}, w)
	if err != nil {
		t.Fatal(err)
	}
	if cpu := all[plain][0].Used.CPU; cpu <= 0 {
		t.Errorf("%v s of processor time", cpu)
	}
}

// TestShop asks the shop over all stacks.
func TestShop(t *testing.T) {
	f, ctx := newGroup(t)
	for name, s := range map[string][2]string{"a": {stackFabric, roleManaged}, "b": {stackGRPC, ""}, "c": {stackGRPC, roleProxy}} {
		w, err := f.shopTopology(ctx, name, s[0], s[1])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := turns(ctx, 1, load{Call: "shop", InFlight: 2, Seconds: 0.01}, w); err != nil {
			t.Errorf("%v: %v", s, err)
		}
	}
}

// TestMarks finds calls to which parts of two sets of policies were applied, and those lost.
func TestMarks(t *testing.T) {
	f, ctx := newGroup(t)
	w, err := f.markedTopology(ctx)
	if err != nil {
		t.Fatal(err)
	}
	whole, half := markingPolicies("even"), strings.Replace(markingPolicies("odd"), "'odd'", "'even'", 1)
	for name, c := range map[string]struct {
		set   string
		wrong bool
	}{"whole sets": {whole, false}, "a set of two halves": {half, true}} {
		r, err := runWithSwaps(w, swapping{Sets: []string{c.set}, Swaps: 20, Seconds: 0.05})
		if err != nil {
			t.Fatal(name, err)
		}
		if (r.Wrong > 0) != c.wrong || r.Lost > 0 || r.Calls+r.Wrong == 0 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestChain measures chains of all lengths, and each policy alone.
func TestChain(t *testing.T) {
	p, err := newBench(t).start(t.Context(), spec{Role: roleChain, Name: "chain"})
	if err != nil {
		t.Fatal(err)
	}
	m := &chainMeter{process: p, calls: 100}
	if err := errors.Join(m.round(), p.stop()); err != nil {
		t.Fatal(err)
	}
	if len(m.slopes) != 1 || len(m.alone) != len(policyKinds()) {
		t.Errorf("%d slopes, %d policies alone", len(m.slopes), len(m.alone))
	}
}

// TestMistakes are told by the process that made them.
func TestMistakes(t *testing.T) {
	b := newBench(t)
	for name, s := range map[string]spec{
		"no such role":         {Role: "king"},
		"no such application":  {Role: roleServer, Stack: stackGRPC, App: "x", Listen: b.socket("x")},
		"a line of a policy":   {Role: roleManaged, Listen: b.socket("y"), Policies: "policies: [{name: a, rate: {rate: x}}]"},
		"a target that is not": {Role: roleManaged, Listen: b.socket("z"), Targets: map[string][]string{"s": {b.socket("none")}}},
	} {
		s.Name = name
		if p, err := b.start(t.Context(), s); err == nil {
			t.Errorf("%s: started", name)
			_ = p.stop()
		}
	}
}

func TestSlope(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   float64
	}{
		"rising": {[]float64{1, 3, 5, 7}, 2},
		"flat":   {[]float64{4, 4, 4}, 0},
		"noisy":  {[]float64{0, 2, 1, 3}, 0.8},
	} {
		if got := slope(c.values); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestUnevenness(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   float64
	}{
		"even":    {[]float64{0.5, 0.5, 0.5, 0.5}, 1},
		"one":     {[]float64{0.9, 0.3, 0.3, 0.3}, 2},
		"nothing": {nil, 0},
	} {
		if got := unevenness(c.values); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestSummary(t *testing.T) {
	a, b := new(tally), new(tally)
	for i := range 100 {
		a.add(time.Duration(i+1)*time.Microsecond, nil)
	}
	b.add(0, errWrong)
	b.add(0, status.Error(codes.Unavailable, "gone"))
	b.add(0, status.Error(codes.Unavailable, "gone again"))
	want := result{Calls: 100, Lost: 2, Wrong: 1, P50: 50, P90: 90, P99: 99, Mean: 50.5, Cause: status.Error(codes.Unavailable, "gone").Error()}
	got := summary([]*tally{a, b})
	got.Mean = math.Round(got.Mean*1e6) / 1e6
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestBucket(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	b := bucket{rate: 10, burst: 2, tokens: 2, last: now}
	for i, c := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {0, true}, {0, false}, {50 * time.Millisecond, false}, {50 * time.Millisecond, true}, {time.Hour, true}, {0, true}, {0, false}} {
		now = now.Add(c.after)
		if got := b.allow(now); got != c.want {
			t.Errorf("step %d: got %v, want %v", i, got, c.want)
		}
	}
}

// TestBackend works one call after the other, and reports the share of the time.
func TestBackend(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	b := &backend{takes: 100 * time.Millisecond, free: now, since: window{began: now}}
	for i, want := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond} {
		if got := b.queue(now).Sub(now); got != want {
			t.Errorf("call %d is done after %v, want %v", i, got, want)
		}
	}
	if got := b.report(now.Add(400 * time.Millisecond)).GetCpuUtilization(); math.Abs(got-0.5) > 1e-9 {
		t.Errorf("utilization %v, want 0.5", got)
	}
	if got := b.queue(now.Add(time.Second)).Sub(now); got != 1100*time.Millisecond {
		t.Errorf("a call after a pause is done after %v", got)
	}
	if got := b.doneBy(now.Add(1050 * time.Millisecond)); got != 250*time.Millisecond {
		t.Errorf("%v of work was done", got)
	}
}

// TestJudge is the proxy's three policies.
func TestPolicyRun(t *testing.T) {
	x := &l7{allowed: map[string]bool{"a.B": true}, bucket: bucket{burst: 1, tokens: 1, last: time.Now()}}
	for i, c := range []struct {
		service string
		want    codes.Code
	}{{"a.C", codes.PermissionDenied}, {"a.B", codes.OK}, {"a.B", codes.ResourceExhausted}} {
		if got := status.Code(x.policies(c.service, "/"+c.service+"/M")); got != c.want {
			t.Errorf("call %d: got %v, want %v", i, got, c.want)
		}
	}
	for method, want := range map[string]string{"/a.B/M": "a.B", "": "", "/": "", "a.B": ""} {
		if got := serviceOf(method); got != want {
			t.Errorf("%q: got %q, want %q", method, got, want)
		}
	}
}

// TestEnvoyConfig is a file that can be read, with nothing left to fill in.
func TestEnvoyConfig(t *testing.T) {
	text := envoyText("/a", "s.S", "/b")
	var config map[string]map[string][]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		t.Fatal(err)
	}
	if n := len(config["static_resources"]["clusters"]); n != 1 {
		t.Errorf("%d clusters", n)
	}
	for _, left := range []string{"LISTEN", "SERVICE", "SERVER"} {
		if strings.Contains(text, left) {
			t.Errorf("%s is not filled in", left)
		}
	}
}

// TestFrames reads frames that come in pieces, and refuses two at once.
func TestFrames(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	go func() {
		for _, piece := range []string{"\x03", "\x00\x00\x00", "ab", "c", "\x01\x00\x00\x00x\x01"} {
			if _, err := far.Write([]byte(piece)); err != nil {
				return
			}
		}
	}()
	frame, err := readFrame(near, nil)
	if err != nil || string(frame[frameHead:]) != "abc" {
		t.Fatalf("got %q, %v", frame, err)
	}
	if frame, err = readFrame(near, frame); err == nil {
		t.Errorf("two frames were taken as %q", frame)
	}
}

// TestOpenLoop begins calls whether or not those before are answered.
func TestOpenLoop(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var begun atomic.Int32
	call := func() error {
		begun.Add(1)
		<-ctx.Done()
		return nil
	}
	over := func() bool {
		if begun.Load() < 5 {
			return false
		}
		cancel()
		return true
	}
	if got := openLoop(call, 10_000, over)[0]; len(got.times) < 5 {
		t.Errorf("%d calls", len(got.times))
	}
}
