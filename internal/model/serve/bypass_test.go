package serve_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/repository"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// A bypassClient is a process with a bypass.
type bypassClient struct {
	*worker.BypassClient
	*bench
	name string
}

// openBypass opens a bypass to a model for a client.
func (b *bench) openBypass(client, model string) (*bypassClient, error) {
	b.t.Helper()
	granted, err := serve.OpenBypass(b.t.Context(), b.Server, client, model, 8)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, f := range granted.Files() {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			b.t.Fatal(err)
		}
		files = append(files, os.NewFile(uintptr(fd), f.Name()))
	}
	c, err := worker.OpenBypassClient(files, granted.Timeout)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(c.Close)
	return &bypassClient{c, b, client}, nil
}

// request is a request of the client that goes through the node.
func (c *bypassClient) request() *serve.Request {
	r := c.bench.request(0)
	r.Sequence.Client = c.name
	return r
}

// open sends requests through the node until the bypass takes one.
func (c *bypassClient) open() {
	c.t.Helper()
	for range 10_000 {
		if _, err := c.bench.Infer(c.t.Context(), c.request()); err != nil {
			c.t.Fatal(err)
		}
		if c.call(0) == "a" {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.t.Fatal("the bypass takes no calls")
}

// call returns the output of a call through the bypass, or its error.
func (c *bypassClient) call(x byte) string {
	y, err := c.Infer(c.t.Context(), c.bench.request(x).Inputs, []string{"y"})
	if err != nil {
		return err.Error()
	}
	return string(y[0].Data)
}

// awaitEnd waits until the bypass has ended.
func (c *bypassClient) awaitEnd() {
	c.t.Helper()
	for range 60_000 {
		if c.call(0); c.Broken() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	c.t.Fatal("the bypass has not ended")
}

// A client bypasses the queue only while it is the only one, and its calls are counted.
func TestSoleClientBypassesQueue(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	if _, err := b.openBypass("tea", "m"); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("a model that is not loaded: %v", err)
	}
	b.want("a1")
	tea, err := b.openBypass("tea", "m")
	if err != nil {
		t.Fatal(err)
	}
	if got := tea.call(0); got != worker.ErrNoBypass.Error() {
		t.Errorf("before a request of the client: %q", got)
	}
	tea.open()
	before := b.Stats()[0].Succeeded
	for range 10 {
		if got := tea.call(0); got != "a" {
			t.Errorf("a sole client: %q", got)
		}
	}
	if got := b.Stats()[0].Succeeded - before; got != 10 {
		t.Errorf("%d of 10 calls are counted", got)
	}
	b.want("a1")
	if got := tea.call(0); got != worker.ErrNoBypass.Error() {
		t.Errorf("after a request of another client: %q", got)
	}
	tea.open()
}

// The requests of a client that sends several at once go through the queue.
func TestConcurrentRequestsUseQueue(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.want("a1")
	tea, err := b.openBypass("tea", "m")
	if err != nil {
		t.Fatal(err)
	}
	tea.open()
	long, done := tea.request(), make(chan error, 1)
	long.Inputs = b.request(1).Inputs
	go func() {
		_, err := b.Infer(t.Context(), long)
		done <- err
	}()
	<-b.engine.started
	short := tea.request()
	short.Inputs = long.Inputs
	go func() {
		_, err := b.Infer(t.Context(), short)
		done <- err
	}()
	for tea.call(0) == "a" {
		time.Sleep(time.Millisecond)
	}
	close(b.engine.proceed)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	tea.open()
}

// Another client gets the bypass once its present client does not use it.
func TestBypassPassesToOtherClient(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	b.want("a1")
	tea, err := b.openBypass("tea", "m")
	if err != nil {
		t.Fatal(err)
	}
	tea.open()
	if _, err := b.openBypass("coffee", "m"); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("while it is used: %v", err)
	}
	coffee, err := b.openBypass("coffee", "m")
	if err != nil {
		t.Fatal(err)
	}
	tea.awaitEnd()
	coffee.open()
}

// The calls of a bypass end with its version: none is lost, and none reaches an earlier version.
func TestRollOutEndsBypass(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{Aliases: []string{"alias"}})
	b.want("a1")
	tea, err := b.openBypass("tea", "alias")
	if err != nil {
		t.Fatal(err)
	}
	tea.open()
	result := make(chan string, 1)
	go func() { result <- tea.call(1) }()
	<-b.engine.started
	b.push("b", repository.Config{})
	for got := ""; got != "b2"; {
		if got, err = b.infer(0); err != nil {
			t.Fatal(err)
		}
	}
	close(b.engine.proceed)
	if got := <-result; got != "a" {
		t.Errorf("the call in progress: %q", got)
	}
	tea.awaitEnd()
	select {
	case <-b.engine.closed:
	case <-time.After(5 * time.Minute):
		t.Error("the earlier version is not unloaded")
	}
	if s := b.Stats(); len(s) != 1 || s[0].Version != 2 {
		t.Errorf("loaded: %+v", s)
	}
}

// An alias that moves to another model takes no bypass with it.
func TestMovedAliasEndsBypass(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{Aliases: []string{"alias"}})
	b.want("a1")
	tea, err := b.openBypass("tea", "alias")
	if err != nil {
		t.Fatal(err)
	}
	tea.open()
	b.push("a", repository.Config{})
	b.pushAs("n", "b", repository.Config{Aliases: []string{"alias"}})
	tea.awaitEnd()
}

// A canary gets its share of the requests of a client that had a bypass to the preceding version, which
// stays loaded.
func TestCanaryEndsBypass(t *testing.T) {
	b := open(t)
	b.push("b", repository.Config{})
	b.push("a", repository.Config{})
	b.want("a2")
	tea, err := b.openBypass("tea", "m")
	if err != nil {
		t.Fatal(err)
	}
	tea.open()
	if _, err := b.repository.Rollout(t.Context(), "m", 1, 30); err != nil {
		t.Fatal(err)
	}
	if err := b.Await(t.Context(), "m", 3); err != nil {
		t.Fatal(err)
	}
	tea.awaitEnd()
	if _, err := b.openBypass("tea", "m"); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("a bypass beside a canary: %v", err)
	}
}

// An unloaded model, and a node that stops, end the bypass.
func TestUnloadEndsBypass(t *testing.T) {
	b := open(t)
	b.push("a", repository.Config{})
	for _, end := range []func() error{func() error { return b.Unload("m") }, b.Close} {
		b.want("a1")
		tea, err := b.openBypass("tea", "m")
		if err != nil {
			t.Fatal(err)
		}
		tea.open()
		if err := end(); err != nil {
			t.Fatal(err)
		}
		tea.awaitEnd()
	}
}

// Models whose requests the node itself has to see are not bypassed.
func TestBypassRefused(t *testing.T) {
	for name, config := range map[string]repository.Config{
		"NaNs are refused": {NaN: "refuse"},
		"a delay":          {Batching: repository.Batching{Delay: repository.Duration(time.Millisecond)}},
	} {
		b := open(t)
		b.push("a", config)
		b.want("a1")
		if _, err := b.openBypass("tea", "m"); outboard.KindOf(err) != outboard.Busy {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := open(t)
	b.push("a", repository.Config{})
	b.want("a1")
	b.peers.report(serve.Report{Node: "dinghy"})
	if _, err := b.openBypass("tea", "other"); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("an unknown model: %v", err)
	}
	if _, err := b.openBypass("tea", "m"); err != nil {
		t.Errorf("this node serves the model: %v", err)
	}
}
