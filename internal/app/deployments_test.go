package app

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// fakeFunction is a function that counts its closes.
type fakeFunction struct {
	content string
	closed  *atomic.Int64
}

func (f *fakeFunction) ArenaLimit() outboard.Bytes { return outboard.Bytes(len(f.content)) }
func (f *fakeFunction) Close() error               { f.closed.Add(1); return nil }

type fakeResources struct{}

func (fakeResources) SetSecrets(map[string][]byte) {}
func (fakeResources) Close()                       {}

// fakePool is the planes, the files and the other nodes of Deployments.
type fakePool struct {
	built, closed atomic.Int64

	mu     sync.Mutex
	files  map[string]string
	routes []string // of the apps that serve, and those that are loading in brackets
	others map[string]Progress
}

func (p *fakePool) NewResources(string) Resources { return fakeResources{} }

func (p *fakePool) DeployFunction(_ context.Context, _ *Version[*fakeFunction, string], s Source) (*fakeFunction, error) {
	if strings.HasPrefix(string(s.Content), "bad") {
		return nil, errors.New("it is no module")
	}
	p.built.Add(1)
	return &fakeFunction{string(s.Content), &p.closed}, nil
}

func (p *fakePool) CheckWorkflows(*Version[*fakeFunction, string]) []manifest.Problem { return nil }

func (p *fakePool) ParseWorkflow(_ *Version[*fakeFunction, string], s Source, unknown func(string) string) (string, []manifest.Problem) {
	if text := unknown(string(s.Content)); text != "" {
		return "", []manifest.Problem{{File: s.File, Text: text}}
	}
	return string(s.Content), nil
}

func (p *fakePool) Size(digest string) (int64, error) {
	_, err := p.Read(nil, digest) //nolint:staticcheck // it does not wait
	return 1, err
}

func (p *fakePool) Read(_ context.Context, digest string) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	content, ok := p.files[digest]
	if !ok {
		return nil, outboard.Errorf(outboard.NotFound, "", "no node has it")
	}
	return []byte(content), nil
}

func (p *fakePool) Publish(serving []*Version[*fakeFunction, string], loading []Loading) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.routes = nil
	for _, v := range serving {
		p.routes = append(p.routes, v.Spec.Name)
	}
	for _, a := range loading {
		p.routes = append(p.routes, "("+a.Spec.Name+")")
	}
	return nil
}

func (p *fakePool) published(want ...string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Equal(p.routes, want)
}

func (p *fakePool) survey(context.Context) *Survey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &Survey{Nodes: map[outboard.NodeID]map[string]Progress{"dinghy": p.others}}
}

type bench struct {
	*Deployments[*fakeFunction, string]
	pool     *fakePool
	registry *catalog.Catalog
}

// open runs Deployments over a registry of its own.
func open(t *testing.T) *bench {
	t.Helper()
	registry, err := catalog.Open(t.Context(), catalog.Options{State: statetest.Open(t), Self: "harbour"})
	if err != nil {
		t.Fatal(err)
	}
	p := &fakePool{files: map[string]string{"m": "module", "bad": "bad module", "w": "cart"}}
	d := New(Options[*fakeFunction, string]{
		Registry: registry, Tenant: "tea", Files: p, Planes: p, Router: p, Survey: p.survey, Members: func() <-chan struct{} { return nil },
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx, func() {}) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-done, d.Close(), registry.Close()); err != nil {
			t.Error(err)
		}
		if built, closed := p.built.Load(), p.closed.Load(); built != closed {
			t.Errorf("%d functions were built, %d closed", built, closed)
		}
	})
	return &bench{d, p, registry}
}

func shop(digest string) catalog.Version {
	return catalog.Version{File: "app.yaml", Files: map[string]string{"m.wasm": digest}, App: manifest.App{
		Name: "shop", Tenant: "tea", Functions: map[string]manifest.Function{"cart": {Module: "m.wasm"}},
	}}
}

func (b *bench) apply(t *testing.T, v catalog.Version) int {
	t.Helper()
	applied, err := b.registry.Apply(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return applied.Number
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for limit := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("it did not come about")
		}
	}
}

// Each new version serves when it is built, the two last stay ready, and a removed app is
// closed.
func TestVersionsServe(t *testing.T) {
	b := open(t)
	for want := 1; want <= 3; want++ {
		if number := b.apply(t, shop("m")); number != want {
			t.Fatalf("got version %d", number)
		}
		if err := b.AwaitVersion(t.Context(), "shop", want); err != nil {
			t.Fatal(err)
		}
		if v := b.Current("shop"); v.Number != want || v.ArenaSize() != 6 || b.ArenaSize("shop") != 6 {
			t.Errorf("version %d serves, arena %d", v.Number, v.ArenaSize())
		}
	}
	eventually(t, func() bool { return b.pool.closed.Load() == 1 })
	if !b.pool.published("shop") || len(b.Select("")) != 1 || len(b.Select("shops")) != 0 {
		t.Errorf("routes of %v", b.pool.routes)
	}
	if err := b.registry.Remove(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return b.Current("shop") == nil && b.pool.closed.Load() == 3 })
	if err := b.Unavailable("shop"); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("got %v", err)
	}
}

// A version that can't be built is reported, the one before serves, and it is built again.
func TestFailedVersion(t *testing.T) {
	b := open(t)
	b.apply(t, shop("m"))
	if err := b.AwaitVersion(t.Context(), "shop", 1); err != nil {
		t.Fatal(err)
	}
	b.apply(t, shop("late"))
	if err := b.AwaitVersion(t.Context(), "shop", 2); err == nil || !strings.Contains(err.Error(), "file m.wasm: no node has it") {
		t.Errorf("got %v", err)
	}
	if p := b.Progress()["shop"]; p.Built != 2 || p.Serving != 1 || p.Failure == "" {
		t.Errorf("got %+v", p)
	}
	b.pool.mu.Lock()
	b.pool.files["late"] = "module"
	b.pool.mu.Unlock()
	eventually(t, func() bool { return b.Current("shop").Number == 2 })
}

// A version that executions need is built once for all of them, also when it is not kept.
func TestAcquireBuildsOnce(t *testing.T) {
	b := open(t)
	for range keptVersions + 1 {
		b.apply(t, shop("m"))
	}
	if err := b.AwaitVersion(t.Context(), "shop", keptVersions+1); err != nil {
		t.Fatal(err)
	}
	before := b.pool.built.Load()
	found := make([]*Version[*fakeFunction, string], 16)
	var all sync.WaitGroup
	for i := range found {
		all.Go(func() {
			v, err := b.Acquire(t.Context(), "shop", 1)
			if err != nil {
				t.Error(err)
				return
			}
			found[i] = v
		})
	}
	all.Wait()
	for _, v := range found {
		if v != found[0] {
			t.Error("there are several")
		}
		_ = v.Release()
	}
	if n := b.pool.built.Load() - before; n > 1 {
		t.Errorf("it was built %d times", n)
	}
}

// An execution of another node may name a version that this node's view of the registry does not
// have yet: it is awaited. One that was removed ends the execution.
func TestVersionNotYetKnown(t *testing.T) {
	b := open(t)
	b.apply(t, shop("m"))
	if err := b.AwaitVersion(t.Context(), "shop", 1); err != nil {
		t.Fatal(err)
	}
	type acquired struct {
		v   *Version[*fakeFunction, string]
		err error
	}
	early := make(chan acquired, 1)
	go func() {
		v, err := b.Acquire(t.Context(), "shop", 2)
		early <- acquired{v, err}
	}()
	b.apply(t, shop("m"))
	got := <-early
	if got.err != nil || got.v.Number != 2 {
		t.Fatalf("got %+v", got)
	}
	_ = got.v.Release()
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for _, app := range []string{"shop", "tavern"} {
		if _, err := b.Acquire(over, app, 3); outboard.KindOf(err) != outboard.Unreachable {
			t.Errorf("%s: got %v", app, err)
		}
	}
	if _, err := b.Acquire(t.Context(), "tavern", 0); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("got %v", err)
	}
	if err := b.registry.Remove(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { return b.Current("shop") == nil })
	for number := range 3 {
		if _, err := b.Acquire(t.Context(), "shop", number); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("version %d: got %v", number, err)
		}
	}
}

// The files of a version that no node in reach has may come later: that does not end an
// execution.
func TestVersionOutOfReach(t *testing.T) {
	b := open(t)
	b.apply(t, shop("gone"))
	eventually(t, func() bool { return b.Progress()["shop"].Failure != "" })
	if _, err := b.Acquire(t.Context(), "shop", 1); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("got %v", err)
	}
	if _, err := b.AwaitCurrent(t.Context(), "shop"); outboard.KindOf(err) != outboard.Unreachable || !strings.HasPrefix(err.Error(), "app shop failed to become ready on this node: ") {
		t.Errorf("got %v", err)
	}
}

// Check reports the problems of functions and workflows together.
func TestCheckReportsAll(t *testing.T) {
	b := open(t)
	m, err := manifest.Parse("app.yaml", []byte("app: shop\ntenant: tea\nfunctions:\n  a: {module: a.wasm}\n  cart: {module: m.wasm}\nworkflows: {w: w.yaml, x: x.yaml}\n"), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = b.Check(t.Context(), m, "app.yaml", map[string]string{"a.wasm": "bad", "m.wasm": "m", "w.yaml": "w", "x.yaml": "m"})
	problems, ok := err.(manifest.Problems) //nolint:errorlint // it is not wrapped
	if !ok || len(problems) != 2 || problems[0].Line != 4 || !strings.Contains(problems[1].Text, `no function "module"`) {
		t.Errorf("got %v", err)
	}
	if !b.pool.published() {
		t.Error("what is checked serves")
	}
}

// The messages of an app that is loading are accepted only where no other node serves it.
func TestAcceptEarly(t *testing.T) {
	v := &catalog.Version{App: manifest.App{Name: "slow"}}
	p := &fakePool{others: map[string]Progress{"slow": {Serving: 1}}}
	r := newReconciler(New(Options[*fakeFunction, string]{Survey: p.survey}))
	for elsewhere, want := range map[bool]int{true: 0, false: 1} {
		r.elsewhere = map[string]bool{"slow": elsewhere}
		if got := r.acceptEarly(t.Context(), []*catalog.Version{v}); len(got) != want || r.surveying {
			t.Errorf("served elsewhere %v: %v", elsewhere, got)
		}
	}
	r.elsewhere = nil
	if got := r.acceptEarly(t.Context(), []*catalog.Version{v}); len(got) > 0 || !r.surveying {
		t.Errorf("not known yet: %v", got)
	}
	r.work.Wait()
	if found := <-r.surveyed; !found["slow"] {
		t.Error("the survey did not find the node that serves it")
	}
}
