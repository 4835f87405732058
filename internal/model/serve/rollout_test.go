package serve_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// within fails the test if a channel has no value soon.
func within[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal(what)
	}
}

// A roll-back to the version that still serves, since the next one is being loaded or was refused,
// does not load it again, and ends the load of the next one.
func TestRollBackWhileNextIsLoading(t *testing.T) {
	for _, next := range []string{"slow", "broken"} {
		t.Run(next, func(t *testing.T) {
			b := open(t)
			b.push("a", repository.Config{})
			b.want("a1")
			v := b.push(next, repository.Config{})
			if next == "broken" {
				if _, err := b.Place(t.Context(), &v); outboard.KindOf(err) != outboard.Invalid {
					t.Fatal(err)
				}
			}
			b.want("a1")
			if _, err := b.repository.Withdraw(t.Context(), "m", v.Number); err != nil {
				t.Fatal(err)
			}
			if err := b.Await(t.Context(), "m", 3); err != nil {
				t.Fatal(err)
			}
			for range 4 { // each one brings the routes in line with the repository
				if err := b.Load(t.Context(), "m", ""); err != nil {
					t.Fatal(err)
				}
				b.want("a3")
			}
			if n := b.engine.loads("a"); n != 1 {
				t.Errorf("the version that serves was loaded %d times", n)
			}
		})
	}
}

// The load of a version ends when the version is replaced or removed, and requests that wait for it
// get an error.
func TestLoadEndsWithItsVersion(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(b *bench)
		wait func(b *bench) error
		want outboard.Kind
	}{
		"replaced": {
			func(b *bench) { b.push("a", repository.Config{}); b.wantSoon("a2") },
			func(b *bench) error { return b.Load(b.t.Context(), "m", "") }, outboard.Conflict,
		},
		"removed": {
			func(b *bench) {
				if err := b.repository.Remove(b.t.Context(), "m"); err != nil {
					b.t.Error(err)
				}
			},
			func(b *bench) error { _, err := b.infer(0); return err }, outboard.NotFound,
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t)
			b.push("slow", repository.Config{})
			waited := make(chan error, 1)
			go func() { waited <- c.wait(b) }()
			for !b.isLoading("m") {
				<-time.After(time.Millisecond)
			}
			c.end(b)
			within(t, b.engine.cancelled, "the load goes on")
			if err := <-waited; outboard.KindOf(err) != c.want {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
}

// isLoading reports whether a model is being loaded.
func (b *bench) isLoading(name string) bool {
	m, err := b.repository.Get(name)
	return err == nil && b.Explain(m.Current())[0].State == serve.StateLoading
}

// While a version that follows a canary is being loaded, the canary does not get all requests.
func TestCanaryGetsNoMoreDuringTheNextLoad(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.push("b", repository.Config{})
	_, err := b.repository.Rollout(t.Context(), "m", 1, 30)
	if err := errors.Join(err, b.Await(t.Context(), "m", 3), b.Load(t.Context(), "m", ""), b.Load(t.Context(), "m", "2")); err != nil {
		t.Fatal(err)
	}
	b.push("slow", repository.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for row := 0; row < 20; row++ {
		if got, err := b.infer(0); err != nil {
			t.Fatal(err)
		} else if got != "b2" {
			row = 0
		}
		if ctx.Err() != nil {
			t.Fatal("the canary still gets requests")
		}
	}
}

// A node unloads a model whose next version it may not load, and does not load that one.
func TestVersionForOtherNodes(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.want("a1")
	b.push("b", repository.Config{Nodes: []string{"dinghy"}})
	within(t, b.engine.closed, "the version before is still loaded")
	r := b.request(0)
	r.Local = true
	if _, err := b.Infer(t.Context(), r); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("a forwarded request: %v", err)
	}
	if n := b.engine.loads("b"); n != 0 {
		t.Errorf("loaded %d times on a node that may not", n)
	}
}

// launches are the processes that a bench starts; the second one starts when next is closed.
type launches struct {
	launch  helper.Launcher
	first   helper.Process
	started int
	begun   chan struct{} // closed when the second one is about to start
	next    chan struct{}
	ended   chan struct{} // closed when the second one has ended
}

func (l *launches) start(program string, socket *os.File) (helper.Process, error) {
	l.started++
	second := l.started == 2
	if second {
		close(l.begun)
		<-l.next
	}
	p, err := l.launch(program, socket)
	if err != nil {
		return nil, err
	}
	if second {
		return &observed{p, l.ended}, nil
	}
	l.first = p
	return p, nil
}

// observed is a process that reports its end.
type observed struct {
	helper.Process
	ended chan struct{}
}

func (p *observed) Wait() error {
	defer close(p.ended)
	return p.Process.Wait()
}

// openObserved returns a server with observed launches of its processes.
func openObserved(t *testing.T) (*bench, *launches) {
	t.Helper()
	l := &launches{begun: make(chan struct{}), next: make(chan struct{}), ended: make(chan struct{})}
	return openWith(t, func(o *serve.Options) {
		launch := o.Launch
		o.Launch = func(name string, memory int64) helper.Launcher {
			l.launch = launch(name, memory)
			return l.start
		}
	}), l
}

// A process that is being restarted when its model is unloaded does not outlive the model.
func TestUnloadEndsRestart(t *testing.T) {
	b, l := openObserved(t)
	b.push("a", repository.Config{})
	b.want("a1")
	l.first.Kill()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan error, 1)
	go func() {
		for {
			_, err := b.Infer(ctx, b.request(0))
			if ctx.Err() != nil {
				asked <- err
				return
			}
		}
	}()
	within(t, l.begun, "it was not started again")
	cancel()
	<-asked
	if err := b.Unload("m"); err != nil {
		t.Fatal(err)
	}
	close(l.next)
	within(t, l.ended, "the process goes on")
}

// While a model's process is not running, requests go to another node on which the model is ready; the
// only node starts it again.
func TestCrashedProcessGetsNoRequests(t *testing.T) {
	b, l := openObserved(t)
	v := b.push("a", repository.Config{})
	b.want("a1")
	l.first.Kill()
	for b.Explain(&v)[0].State == serve.StateReady {
		<-time.After(time.Millisecond)
	}
	b.peers.report(serve.Report{Node: "dinghy", Models: []serve.ModelReport{{Name: "m", Content: v.Content(), Version: 1, State: serve.StateReady, Serves: true}}})
	if r, err := b.Infer(t.Context(), b.request(0)); err != nil || r.Node != "dinghy" {
		t.Errorf("executed on %+v, %v", r, err)
	}
	b.peers.report()
	close(l.next)
	b.want("a1")
}

// A request for a version that a node could not load, here for a corrupt file, is executed on another
// node.
func TestFailedLoadIsTriedElsewhere(t *testing.T) {
	b := open(t)
	b.push("a corrupt", repository.Config{})
	b.peers.report(serve.Report{Node: "dinghy"})
	if r, err := b.Infer(t.Context(), b.request(0)); err != nil || r.Node != "dinghy" {
		t.Errorf("executed on %+v, %v", r, err)
	}
}

// dinghy is the report of another node on versions of the model m; the first one serves there.
func dinghy(state serve.State, serving, other repository.Version) serve.Report {
	return serve.Report{Node: "dinghy", Models: []serve.ModelReport{
		{Name: "m", Content: serving.Content(), Version: serving.Number, State: serve.StateReady, Serves: true},
		{Name: "m", Content: other.Content(), Version: other.Number, State: state},
	}}
}

// While another node loads a version, requests of other nodes go to the version before it there,
// without waiting, unless they are for exactly that version.
func TestRollOutOnAnotherNode(t *testing.T) {
	for _, state := range []serve.State{serve.StateLoading, serve.StateUnloaded} {
		b := open(t)
		first, second := b.push("a", repository.Config{}), b.push("b", repository.Config{})
		b.peers.report(dinghy(state, first, second))
		r, err := b.Infer(t.Context(), b.request(0))
		if err != nil || r.Node != "dinghy" || b.engine.loads("b") != 0 {
			t.Errorf("%s: executed on %+v, loaded %d times here: %v", state, r, b.engine.loads("b"), err)
		}
		exact := b.request(0)
		exact.Version = "2"
		if r, err := b.Infer(t.Context(), exact); err != nil || r.Node != "harbour" {
			t.Errorf("%s: version 2 was executed on %+v: %v", state, r, err)
		}
	}
}

// A generation uses the version that serves when its request arrives, also while the next one is
// being loaded there, and does not make other nodes load that version when it is no longer in force,
// unless the first node is lost.
func TestTextKeepsItsVersion(t *testing.T) {
	b := open(t)
	first, second := b.push("a", repository.Config{}), b.push("b", repository.Config{})
	b.peers.report(dinghy(serve.StateLoading, first, second))
	b.peers.serving = map[outboard.NodeID]int{"dinghy": first.Number}
	text, release, err := b.OpenText(t.Context(), "m", "", serve.Prompt{})
	if err != nil || text.Node != "dinghy" || text.Version.Number != 1 || text.Pinned != "1" {
		t.Fatalf("%+v, %v", text, err)
	}
	release()
	prompt := serve.Prompt{Tokens: []int32{1, 2}}
	again, release, err := b.OpenText(t.Context(), "m", text.Pinned, prompt)
	if err != nil || again.Node != "dinghy" || again.Version.Number != 1 {
		t.Errorf("for its prompt: %+v, %v", again, err)
	}
	release()
	b.peers.report(serve.Report{Node: "dinghy", Models: []serve.ModelReport{{Name: "m", Content: second.Content(), Version: 2, State: serve.StateReady, Serves: true}}})
	if again, _, err := b.OpenText(t.Context(), "m", text.Pinned, prompt); err == nil || b.engine.loads("a") != 0 {
		t.Errorf("after the roll-out: %+v, loaded %d times here", again, b.engine.loads("a"))
	}
	// The model for tensors here stands for the next replica.
	if _, _, err := b.OpenText(t.Context(), "m", text.Pinned, serve.Prompt{}, "dinghy"); outboard.KindOf(err) != outboard.Invalid || b.engine.loads("a") != 1 {
		t.Errorf("elsewhere: %v, loaded %s times here", err, fmt.Sprint(b.engine.loads("a")))
	}
}
