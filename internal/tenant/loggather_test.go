package tenant

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A logPool is nodes that tell their lines by a plan.
type logPool struct {
	begin   time.Time
	members members
	plans   map[outboard.NodeID]func(ctx context.Context, q logQuery, asked int, tell logTeller) error
	told    []string

	mu    sync.Mutex
	asked map[outboard.NodeID]int
}

func newLogPool() *logPool {
	return &logPool{begin: time.Now(), asked: map[outboard.NodeID]int{}, plans: map[outboard.NodeID]func(context.Context, logQuery, int, logTeller) error{}}
}

func (p *logPool) line(node outboard.NodeID, second int) []client.LogLine {
	return []client.LogLine{{Time: p.begin.Add(time.Duration(second) * time.Second), Node: node, Text: fmt.Sprint(second)}}
}

func (p *logPool) set(ids ...outboard.NodeID) {
	var nodes []outboard.Node
	for _, id := range ids {
		nodes = append(nodes, outboard.Node{ID: id})
	}
	p.members.set(nodes)
}

func (p *logPool) gatherer(q logQuery) *logGatherer {
	there := func(ctx context.Context, node outboard.NodeID, q logQuery, tell logTeller) error {
		p.mu.Lock()
		p.asked[node]++
		asked := p.asked[node]
		p.mu.Unlock()
		return p.plans[node](ctx, q, asked, tell)
	}
	return &logGatherer{
		query: q, self: "a", members: &p.members, there: there,
		here: func(ctx context.Context, q logQuery, tell logTeller) error { return there(ctx, "a", q, tell) },
		tell: func(lines []client.LogLine) error {
			for _, l := range lines {
				text, _, _ := strings.Cut(l.Text, ":")
				p.told = append(p.told, string(l.Node)+" "+text)
			}
			return nil
		},
	}
}

// kept is a node that tells what it kept, and then nothing.
func (p *logPool) kept(node outboard.NodeID, seconds ...int) {
	p.plans[node] = func(ctx context.Context, q logQuery, _ int, tell logTeller) error {
		for _, second := range seconds {
			if err := tell(p.line(node, second)); err != nil {
				return err
			}
		}
		if err := tell(nil); err != nil || !q.Follow {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// What all nodes keep is told as one log, and those that do not answer are named.
func TestLogsOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLogPool()
		p.set("a", "b", "c", "d")
		p.kept("a", 1, 4)
		p.kept("b", 2, 3, 5)
		p.plans["c"] = func(context.Context, logQuery, int, logTeller) error { return errors.New("away") }
		p.plans["d"] = func(ctx context.Context, _ logQuery, _ int, _ logTeller) error { <-ctx.Done(); return ctx.Err() }
		if err := p.gatherer(logQuery{Lines: 4}).run(t.Context()); err != nil {
			t.Error(err)
		}
		want := []string{"b 2", "b 3", "a 4", "b 5", "c the lines of node c are missing", "d the lines of node d are missing"}
		if diff := cmp.Diff(want, p.told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if took := time.Since(p.begin); took != logPatience {
			t.Errorf("it took %v", took)
		}
	})
}

// Who follows hears nodes that come later and nodes that come back, and each line once.
func TestFollowAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLogPool()
		p.set("a", "b")
		p.kept("a", 0)
		p.plans["b"] = func(ctx context.Context, _ logQuery, asked int, tell logTeller) error {
			switch asked {
			case 1:
				_ = errors.Join(tell(nil), tell(p.line("b", 1)), tell(p.line("b", 2)))
				return errors.New("killed")
			case 2:
				return errors.New("still away")
			}
			_ = errors.Join(tell(p.line("b", 2)), tell(p.line("b", 3)), tell(nil), tell(p.line("b", 4)))
			<-ctx.Done()
			return ctx.Err()
		}
		p.kept("c", -1, 9)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.gatherer(logQuery{Lines: 1, Follow: true}).run(ctx) }()
		time.Sleep(time.Minute)
		p.set("a", "b", "c")
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		want := []string{"a 0", "b 1", "b 2", "b the lines of node b are missing", "b 3", "b 4", "c 9"}
		if diff := cmp.Diff(want, p.told); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// When the app is gone here, it is gone everywhere.
func TestFollowEndsWithTheApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLogPool()
		p.set("a", "b")
		p.plans["a"] = func(_ context.Context, _ logQuery, _ int, tell logTeller) error {
			time.Sleep(time.Second)
			return tell(nil)
		}
		p.kept("b")
		if err := p.gatherer(logQuery{Follow: true}).run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
