package serve_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/worker"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// fake is an engine whose models return the first byte of their file, as the output "y". The input
// "x" 1 has a model wait until proceed is closed; a file that begins with "slow" is loaded when
// loading is closed, and one that begins with "broken" never.
type fake struct {
	proceed, loading chan struct{}
	started          chan struct{} // has a value for each call that waits
	cancelled        chan struct{} // has a value for each load that was cancelled

	mu        sync.Mutex
	loaded    map[string]int   // by content
	sequences []model.Sequence // of the requests of models that hold state
	outputs   [][]string       // of requests that name outputs
	closed    chan struct{}    // has a value for each model that was unloaded, up to its capacity
}

func (*fake) Name() string    { return "fake" }
func (*fake) Version() string { return "1" }

func (f *fake) Load(ctx context.Context, m engine.Source, _ engine.Options) (engine.Model, error) {
	content, err := os.ReadFile(m.Path)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(string(content), "slow") {
		select {
		case <-f.loading:
		case <-ctx.Done():
			f.cancelled <- struct{}{}
			return nil, ctx.Err()
		}
	}
	if strings.HasPrefix(string(content), "library") {
		return nil, outboard.Errorf(outboard.NoDevice, "load the library", "there is none")
	}
	if strings.HasPrefix(string(content), "large") {
		return nil, outboard.Errorf(outboard.Exhausted, "load", "raise `memory`")
	}
	if strings.HasPrefix(string(content), "broken") {
		return nil, outboard.Errorf(outboard.Invalid, "load", "operator Foo is unknown")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.loaded[string(content)]++
	if strings.HasPrefix(string(content), "stateful") {
		return &statefulModel{fakeModel{f, content[0]}}, nil
	}
	return &fakeModel{f, content[0]}, nil
}

// A statefulModel holds state between the requests of a sequence.
type statefulModel struct{ fakeModel }

func (m *statefulModel) Info() engine.Info {
	info := m.fakeModel.Info()
	info.Stateful = true
	return info
}

func (m *statefulModel) InferSequence(ctx context.Context, q model.Sequence, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	m.mu.Lock()
	m.sequences = append(m.sequences, q)
	m.mu.Unlock()
	return m.Infer(ctx, inputs, outputs)
}

// requestsOfSequences returns the sequences of the requests that an engine with state has had.
func (f *fake) requestsOfSequences() []model.Sequence {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sequences)
}

// outputsOfRequests returns the names of outputs of the requests that have any.
func (f *fake) outputsOfRequests() [][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.outputs)
}

func (f *fake) loads(content string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loaded[content]
}

type fakeModel struct {
	*fake
	letter byte
}

func (m *fakeModel) Close() error {
	select {
	case m.closed <- struct{}{}:
	default:
	}
	return nil
}

func (*fakeModel) Info() engine.Info {
	return engine.Info{
		Platform: "fake",
		Inputs:   []model.Signature{{Name: "x", Type: model.Uint8, Shape: []int64{1}}},
		Outputs:  []model.Signature{{Name: "y", Type: model.Uint8, Shape: []int64{1}}},
	}
}

func (m *fakeModel) Infer(ctx context.Context, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	if len(outputs) > 0 {
		m.mu.Lock()
		m.outputs = append(m.outputs, outputs)
		m.mu.Unlock()
	}
	if inputs[0].Data[0] == 1 {
		m.started <- struct{}{}
		select {
		case <-m.proceed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	switch m.letter {
	case 'f':
		return nil, errors.New("out of order")
	case 'n': // narrow: it takes fewer values than others
		return nil, outboard.Errorf(outboard.Invalid, "fake", "the value %d is out of range", inputs[0].Data[0])
	}
	return []model.Tensor{{Name: "y", Type: model.Uint8, Shape: []int64{1}, Data: []byte{m.letter}}}, nil
}

// artifacts are files whose content is their digest. The node lacks them if lacks is true.
type artifacts struct{ lacks bool }

func (artifacts) Ensure(context.Context, string) error { return nil }
func (a artifacts) Has(string) (bool, error)           { return !a.lacks, nil }

func (artifacts) Link(digest, path string) error {
	return os.WriteFile(path, []byte(digest), 0o600)
}

func (artifacts) Verify(_ context.Context, digest string) error {
	if strings.HasSuffix(digest, "corrupt") {
		return outboard.Errorf(outboard.NotFound, "", "there is no artifact %s here", digest)
	}
	return nil
}

// peers are other nodes, each of which answers with its name, or an error.
type peers struct {
	serve.Peers
	mu      sync.Mutex
	reports []serve.Report
	changed chan struct{}
	waited  chan struct{} // closed when Changed is called, nil for nothing
	fail    map[outboard.NodeID]error
	asked   []outboard.NodeID
	alone   []bool                  // whether the requests are to be executed alone
	serving map[outboard.NodeID]int // numbers of the versions that serve
	kept    []string                // arguments of Keep
}

func (p *peers) Reports() []serve.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reports
}

func (p *peers) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	if p.waited != nil {
		close(p.waited)
		p.waited = nil
	}
	return p.changed
}

// report sets the reports of other nodes.
func (p *peers) report(list ...serve.Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reports = list
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

func (p *peers) Publish(context.Context, serve.Report) error { return nil }

func (p *peers) Infer(_ context.Context, node outboard.NodeID, r *serve.Request) (*serve.Response, error) {
	p.asked, p.alone = append(p.asked, node), append(p.alone, r.Alone)
	return &serve.Response{Model: r.Model, Node: node}, p.fail[node]
}

func (p *peers) Describe(_ context.Context, node outboard.NodeID, _ string, version int) (engine.Info, int, error) {
	if version == 0 {
		version = p.serving[node]
	}
	return engine.Info{Platform: string(node)}, version, p.fail[node]
}

// A bench is a server of the node harbour with a fake engine.
type bench struct {
	*serve.Server
	t          *testing.T
	engine     *fake
	peers      *peers
	repository *repository.Repository
	state      *state.State

	mu        sync.Mutex
	processes []string // names of workers that were started
}

func open(t *testing.T) *bench {
	t.Helper()
	return openWith(t, func(*serve.Options) {})
}

// openWith is open with other options.
func openWith(t *testing.T, change func(*serve.Options)) *bench {
	t.Helper()
	b := &bench{t: t, peers: &peers{}, state: statetest.Open(t), engine: &fake{
		proceed: make(chan struct{}), loading: make(chan struct{}), started: make(chan struct{}, 8), cancelled: make(chan struct{}, 8), loaded: map[string]int{}, closed: make(chan struct{}, 8),
	}}
	var err error
	if b.repository, err = repository.Open(t.Context(), repository.Options{State: b.state, Self: "harbour"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.repository.Close() })
	launch := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		return worker.Run(ctx, socket, worker.ProcessOptions{Engines: []engine.Engine{b.engine}})
	})
	opts := serve.Options{
		Self: "harbour", Repository: b.repository, Artifacts: artifacts{}, Peers: b.peers, Dir: t.TempDir() + "/models", ParseTensor: oip.ParseTensor,
		Launch: func(name string, _ int64) helper.Launcher {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.processes = append(b.processes, name)
			return launch
		},
	}
	change(&opts)
	if b.Server, err = serve.Open(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// push makes content the next version of the model m, and waits until the node knows it.
func (b *bench) push(content string, config repository.Config) repository.Version {
	b.t.Helper()
	return b.pushAs("m", content, config)
}

func (b *bench) pushAs(name, content string, config repository.Config) repository.Version {
	b.t.Helper()
	v, err := b.repository.Push(b.t.Context(), repository.Version{
		Name: name, Engine: "fake", Main: "m.fake", Config: config, Files: map[string]repository.File{"m.fake": {Digest: content, Size: 1}},
	})
	if err == nil {
		err = b.Await(b.t.Context(), name, v.Number)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

// infer returns the letter of the version that answers, and its number.
func (b *bench) infer(x byte) (string, error) { return b.inferWith("m", x) }

func (b *bench) inferWith(name string, x byte) (string, error) {
	r := b.request(x)
	r.Model = name
	response, err := b.Infer(b.t.Context(), r)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s%d", response.Outputs[0].Data, response.Version), nil
}

// request is a request of the model m.
func (b *bench) request(x byte) *serve.Request {
	return &serve.Request{Model: "m", Inputs: []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{1}, Data: []byte{x}}}}
}

func (b *bench) want(want string) {
	b.t.Helper()
	if got, err := b.infer(0); err != nil || got != want {
		b.t.Fatalf("%q, %v: want %q", got, err, want)
	}
}

// wantSoon waits until a version answers: the one before it has the requests until then.
func (b *bench) wantSoon(want string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	for got, err := b.infer(0); err != nil || got != want; got, err = b.infer(0) {
		select {
		case <-ctx.Done():
			b.t.Fatalf("%q, %v: want %q", got, err, want)
		case <-time.After(time.Millisecond):
		}
	}
}

// A process that ends late must not take the control group of the one after it with it: no two have
// the same name.
func TestReloadedModelHasAnotherProcess(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	for range 3 {
		b.want("a1")
		if err := b.Unload("m"); err != nil {
			t.Fatal(err)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, name := range b.processes {
		if slices.Contains(b.processes[:i], name) {
			t.Errorf("two processes have the name %s", name)
		}
	}
}

// A model that is not used is unloaded, also without a request; the next request loads it again.
func TestUnusedModelIsUnloaded(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{Idle: 1})
	b.push("a", repository.Config{Idle: 1}) // the same content again
	b.want("a2")
	select {
	case <-b.engine.closed:
	case <-time.After(time.Minute):
		t.Fatal("it is still loaded")
	}
	b.want("a2")
	if n := b.engine.loads("a"); n != 2 {
		t.Errorf("loaded %d times", n)
	}
}

// The version before a canary is not unloaded, and loaded again, while the canary gets requests.
func TestVersionBeforeUsedCanaryStays(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{Idle: 1})
	b.push("b", repository.Config{})
	if _, err := b.repository.Rollout(t.Context(), "m", 1, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.repository.Rollout(t.Context(), "m", 2, 50); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Await(t.Context(), "m", 4), b.Load(t.Context(), "m", ""), b.Load(t.Context(), "m", "3")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		r := b.request(1)
		r.Version = "4"
		_, err := b.Infer(t.Context(), r)
		ended <- err
	}()
	within(t, b.engine.started, "the canary has no request")
	b.pushAs("other", "other", repository.Config{Idle: 1})
	if err := b.Load(t.Context(), "other", ""); err != nil {
		t.Fatal(err)
	}
	within(t, b.engine.closed, "the other model is still loaded")
	if err := b.Load(t.Context(), "m", "3"); err != nil || b.engine.loads("a") != 1 {
		t.Errorf("the version before the canary was loaded %d times: %v", b.engine.loads("a"), err)
	}
	close(b.engine.proceed)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func (p *peers) Load(_ context.Context, node outboard.NodeID, _ string, _ int) error {
	return p.fail[node]
}

// A version for a node that has not reported yet waits for its report.
func TestPlaceWaitsForReports(t *testing.T) {
	b := open(t)
	v := b.push("a", repository.Config{Nodes: []string{"dinghy"}})
	waited := make(chan struct{})
	b.peers.mu.Lock()
	b.peers.waited = waited
	b.peers.mu.Unlock()
	var placing sync.WaitGroup
	placing.Go(func() {
		if nodes, err := b.Place(t.Context(), &v); err != nil || !slices.Equal(nodes, []outboard.NodeID{"dinghy"}) {
			t.Errorf("%v, %v", nodes, err)
		}
	})
	<-waited
	b.peers.report(serve.Report{Node: "dinghy"})
	placing.Wait()
}

func TestLoadOnDemand(t *testing.T) {
	b := open(t)
	if _, err := b.infer(0); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("no model: %v", err)
	}
	b.push("a", repository.Config{Aliases: []string{"alias"}})
	b.want("a1")
	b.want("a1")
	if n := b.engine.loads("a"); n != 1 {
		t.Errorf("loaded %d times", n)
	}
	if ready, err := b.Ready("alias", ""); !ready || err != nil {
		t.Errorf("ready %t, %v", ready, err)
	}
	for name, r := range map[string]*serve.Request{
		"no input":  {Model: "m"},
		"wrong":     {Model: "m", Inputs: []model.Tensor{{Name: "z", Type: model.Uint8, Shape: []int64{1}, Data: []byte{0}}}},
		"shape":     {Model: "m", Inputs: []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{2}, Data: []byte{0, 0}}}},
		"type":      {Model: "m", Inputs: []model.Tensor{{Name: "x", Type: model.Int8, Shape: []int64{1}, Data: []byte{0}}}},
		"truncated": {Model: "m", Inputs: []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{1}}}},
		"output":    {Model: "m", Outputs: []string{"z"}, Inputs: []model.Tensor{{Name: "x", Type: model.Uint8, Shape: []int64{1}, Data: []byte{0}}}},
	} {
		if _, err := b.Infer(t.Context(), r); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A version that can't be loaded says why, and the one before goes on.
func TestBrokenVersion(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.want("a1")
	v := b.push("broken", repository.Config{})
	if _, err := b.Place(t.Context(), &v); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), "operator Foo") {
		t.Errorf("placed: %v", err)
	}
	if err := b.Load(t.Context(), "m", "1"); err != nil {
		t.Errorf("the version before: %v", err)
	}
}

// A version for whose library this node has no file is loaded on another node, and refused if no node
// has it.
func TestLibraryOfAnotherNode(t *testing.T) {
	b := open(t)
	b.peers.report(serve.Report{Node: "dinghy"})
	v := b.push("library", repository.Config{})
	if nodes, err := b.Place(t.Context(), &v); err != nil || !slices.Equal(nodes, []outboard.NodeID{"dinghy"}) {
		t.Errorf("placed on %v: %v", nodes, err)
	}
	b.peers.fail = map[outboard.NodeID]error{"dinghy": outboard.Errorf(outboard.NoDevice, "", "none there, either")}
	if _, err := b.Place(t.Context(), &v); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("without a node: %v", err)
	}
	b.peers.fail["dinghy"] = outboard.Errorf(outboard.Unreachable, "", "lost")
	if _, err := b.Place(t.Context(), &v); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("with a lost node: %v", err)
	}
}

// A version for which its limit of memory leaves too little on all nodes is refused as a wrong one.
func TestLimitOfMemoryIsTooLow(t *testing.T) {
	b := open(t)
	b.peers.report(serve.Report{Node: "dinghy"})
	b.peers.fail = map[outboard.NodeID]error{"dinghy": outboard.Errorf(outboard.Exhausted, "", "raise `memory`")}
	v := b.push("large", repository.Config{})
	if _, err := b.Place(t.Context(), &v); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), "raise `memory`") {
		t.Errorf("placed: %v", err)
	}
}

// A version that no node can load is refused as a wrong one, here the second time since the first load
// failed a moment ago.
func TestNoNodeCanLoad(t *testing.T) {
	b := open(t)
	for range 2 {
		v := b.push("broken", repository.Config{})
		if _, err := b.Place(t.Context(), &v); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("placed version %d: %v", v.Number, err)
		}
		if err := serve.CheckPlacement(t.Context(), b.Server, &v); outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), "operator Foo") {
			t.Errorf("checked version %d: %v", v.Number, err)
		}
	}
}

// A file that turns out to be corrupt while its model is being loaded fails the version, whatever the
// engine says of it, and no process stays.
func TestCorruptFiles(t *testing.T) {
	for _, content := range []string{"a corrupt", "broken corrupt", "slow corrupt"} {
		t.Run(content, func(t *testing.T) {
			b := open(t)
			v := b.push(content, repository.Config{})
			if _, err := b.Place(t.Context(), &v); outboard.KindOf(err) != outboard.NotFound {
				t.Errorf("placed: %v", err)
			}
			if b.engine.loads(content) > 0 {
				<-b.engine.closed
			}
			if _, err := b.infer(0); err == nil {
				t.Error("the model answers")
			}
		})
	}
}

// Requests go to the version before while a new one is being loaded.
func TestSwitch(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.want("a1")
	b.push("slow", repository.Config{})
	b.want("a1")
	close(b.engine.loading)
	if err := b.Load(t.Context(), "m", ""); err != nil {
		t.Fatal(err)
	}
	b.want("s2")
	if _, err := b.repository.Rollback(t.Context(), "m"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Await(t.Context(), "m", 3), b.Load(t.Context(), "m", "")); err != nil {
		t.Fatal(err)
	}
	b.want("a3")
}

// A request that is being executed ends well when its model is unloaded or removed.
func TestDrain(t *testing.T) {
	for name, end := range map[string]func(b *bench) error{
		"unload": func(b *bench) error { return b.Unload("m") },
		"remove": func(b *bench) error { return b.repository.Remove(b.t.Context(), "m") },
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.pushAs("other", "o", repository.Config{})
			b.push("a", repository.Config{})
			done := make(chan error)
			go func() {
				got, err := b.infer(1)
				if err == nil && got != "a1" {
					err = errors.New(got)
				}
				done <- err
			}()
			<-b.engine.started
			if err := end(b); err != nil {
				t.Fatal(err)
			}
			// While other requests are executed, an unload that does not drain would end.
			for range 200 {
				if got, err := b.inferWith("other", 0); err != nil || got != "o1" {
					t.Fatalf("other: %q, %v", got, err)
				}
			}
			select {
			case err := <-done:
				t.Fatalf("the request ended early: %v", err)
			default:
			}
			close(b.engine.proceed)
			if err := <-done; err != nil {
				t.Error(err)
			}
			if name == "unload" {
				b.want("a1")
				if n := b.engine.loads("a"); n != 2 {
					t.Errorf("loaded %d times", n)
				}
			}
		})
	}
}

// A canary gets its percentage, evenly.
func TestCanary(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.push("b", repository.Config{})
	if _, err := b.repository.Rollout(t.Context(), "m", 1, 30); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(b.Await(t.Context(), "m", 3), b.Load(t.Context(), "m", ""), b.Load(t.Context(), "m", "2")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		canary := 0
		for range 20 {
			if _, err := b.Describe(t.Context(), "m", ""); err != nil { // as `outboard infer` does
				t.Fatal(err)
			}
			got, err := b.infer(0)
			if err != nil {
				t.Fatal(err)
			}
			if got[0] == 'a' {
				canary++
			}
		}
		if canary != 6 {
			t.Errorf("%d of 20 requests", canary)
		}
	}
}

// A canary whose requests fail is taken back; one that only gets malformed requests stays.
func TestCanaryGoesBack(t *testing.T) {
	b := open(t)
	b.push("fails", repository.Config{})
	b.push("a", repository.Config{})
	roll := func(number, canary, next int) {
		t.Helper()
		_, err := b.repository.Rollout(t.Context(), "m", number, canary)
		if err = errors.Join(err, b.Await(t.Context(), "m", next)); err != nil {
			t.Fatal(err)
		}
	}
	roll(1, 50, 3)
	if err := errors.Join(b.Load(t.Context(), "m", ""), b.Load(t.Context(), "m", "2")); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		malformed := &serve.Request{Model: "m"}
		if _, err := b.Infer(t.Context(), malformed); outboard.KindOf(err) != outboard.Invalid {
			t.Fatalf("malformed: %v", err)
		}
	}
	if m, err := b.repository.Get("m"); err != nil || m.Current().Number != 3 {
		t.Fatalf("malformed requests: %+v, %v", m.Current(), err)
	}
	failed := 0
	for range 200 { // the first hundred were malformed
		if _, err := b.infer(0); err != nil {
			failed++
		}
		if m, err := b.repository.Get("m"); err == nil && m.Current().Number == 4 {
			break
		}
	}
	if err := b.Await(t.Context(), "m", 4); err != nil || failed == 0 {
		t.Fatalf("%d failed: %v", failed, err)
	}
	m, err := b.repository.Get("m")
	if now := m.Current(); err != nil || now.Of != 2 || now.Canary != 0 {
		t.Errorf("%+v, %v", now, err)
	}
	b.wantSoon("a4")
}

// A request that a canary refuses, and the preceding version accepts, is answered by that version and
// is a failure of the canary: a version that takes other inputs than clients send is reverted.
func TestCanaryRefusesValidRequests(t *testing.T) {
	b := open(t)
	b.push("narrow", repository.Config{})
	b.push("a", repository.Config{})
	_, err := b.repository.Rollout(t.Context(), "m", 1, 50)
	if err = errors.Join(err, b.Await(t.Context(), "m", 3), b.Load(t.Context(), "m", ""), b.Load(t.Context(), "m", "2")); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if got, err := b.infer(0); err != nil || got[0] != 'a' {
			t.Fatalf("got %q, %v", got, err)
		}
	}
	if err := b.Await(t.Context(), "m", 4); err != nil {
		t.Fatal(err)
	}
	b.wantSoon("a4")
	if _, err := b.Infer(t.Context(), &serve.Request{Model: "m", Version: "1", Inputs: b.request(0).Inputs}); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("a request that names the version: %v", err)
	}
}

// A node that can't take a failing canary back, here because it lacks the pool's state and otherwise
// because another node has pushed the model, has the preceding version execute all of its requests.
func TestCanaryIsAbandoned(t *testing.T) {
	b := open(t)
	b.push("fails", repository.Config{})
	b.push("a", repository.Config{})
	_, err := b.repository.Rollout(t.Context(), "m", 1, 50)
	if err := errors.Join(err, b.Await(t.Context(), "m", 3), b.Load(t.Context(), "m", ""), b.Load(t.Context(), "m", "2"), b.state.Close()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for row := 0; row < 20; {
		got, err := b.infer(0)
		if row++; err != nil {
			row = 0
		} else if got != "a2" {
			t.Fatalf("got %q, want a2", got)
		}
		if ctx.Err() != nil {
			t.Fatalf("the canary still gets requests: %v", err)
		}
	}
}

// A model that may not be loaded here is executed and described elsewhere; a node that is lost is
// replaced by the next.
func TestElsewhere(t *testing.T) {
	b := open(t)
	b.peers.report(serve.Report{Node: "dinghy"}, serve.Report{Node: "tender"})
	b.peers.fail = map[outboard.NodeID]error{"dinghy": outboard.Errorf(outboard.Unreachable, "", "lost")}
	b.push("a", repository.Config{Nodes: []string{"dinghy", "tender"}})
	r, err := b.Infer(t.Context(), &serve.Request{Model: "m"})
	if err != nil || r.Node != "tender" || len(b.peers.asked) != 2 {
		t.Errorf("%+v, %v after %v", r, err, b.peers.asked)
	}
	d, err := b.Describe(t.Context(), "m", "")
	if err != nil || d.Info.Platform != "tender" {
		t.Errorf("%+v, %v", d, err)
	}
	if n := b.engine.loads("a"); n != 0 {
		t.Errorf("loaded %d times on a node that may not", n)
	}
	b.peers.fail["tender"] = outboard.Errorf(outboard.Exhausted, "", "the queue is full")
	b.peers.fail["dinghy"] = b.peers.fail["tender"]
	b.peers.asked = nil
	if _, err := b.Infer(t.Context(), &serve.Request{Model: "m"}); outboard.KindOf(err) != outboard.Exhausted || len(b.peers.asked) != 1 {
		t.Errorf("a refusal: %v after %v", err, b.peers.asked)
	}
}
