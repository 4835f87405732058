package logs

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
	"github.com/outboard-run/outboard/internal/tenant/members"
)

// logPool is nodes that send their lines by a plan.
type logPool struct {
	begin   time.Time
	members *members.Members
	plans   map[outboard.NodeID]func(ctx context.Context, q Query, asked int, send Send) error
	sent    []string

	mu    sync.Mutex
	asked map[outboard.NodeID]int
}

func newLogPool() *logPool {
	return &logPool{begin: time.Now(), members: members.New("a", nil), asked: map[outboard.NodeID]int{}, plans: map[outboard.NodeID]func(context.Context, Query, int, Send) error{}}
}

func (p *logPool) line(node outboard.NodeID, second int) []client.LogLine {
	return []client.LogLine{{Time: p.begin.Add(time.Duration(second) * time.Second), Node: node, Text: fmt.Sprint(second)}}
}

func (p *logPool) set(ids ...outboard.NodeID) {
	var nodes []outboard.Node
	for _, id := range ids {
		nodes = append(nodes, outboard.Node{ID: id})
	}
	p.members.Set(nodes)
}

func (p *logPool) merger(q Query) *Merger {
	remote := func(ctx context.Context, node outboard.NodeID, q Query, send Send) error {
		p.mu.Lock()
		p.asked[node]++
		asked := p.asked[node]
		p.mu.Unlock()
		return p.plans[node](ctx, q, asked, send)
	}
	return &Merger{
		Query: q, Self: "a", Members: p.members, Remote: remote,
		Local: func(ctx context.Context, q Query, send Send) error { return remote(ctx, "a", q, send) },
		Send: func(lines []client.LogLine) error {
			for _, l := range lines {
				text, _, _ := strings.Cut(l.Text, ":")
				p.sent = append(p.sent, string(l.Node)+" "+text)
			}
			return nil
		},
	}
}

// kept is a node that sends the lines that it kept, and then nothing.
func (p *logPool) kept(node outboard.NodeID, seconds ...int) {
	p.plans[node] = func(ctx context.Context, q Query, _ int, send Send) error {
		for _, second := range seconds {
			if err := send(p.line(node, second)); err != nil {
				return err
			}
		}
		if err := send(nil); err != nil || !q.Follow {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
}

// The lines that all nodes keep are sent as one log, and nodes that do not answer are named.
func TestLogsOfAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLogPool()
		p.set("a", "b", "c", "d")
		p.kept("a", 1, 4)
		p.kept("b", 2, 3, 5)
		p.plans["c"] = func(context.Context, Query, int, Send) error { return errors.New("away") }
		p.plans["d"] = func(ctx context.Context, _ Query, _ int, _ Send) error { <-ctx.Done(); return ctx.Err() }
		if err := p.merger(Query{Lines: 4}).Run(t.Context()); err != nil {
			t.Error(err)
		}
		want := []string{"b 2", "b 3", "a 4", "b 5", "c the lines of node c are missing", "d the lines of node d are missing"}
		if diff := cmp.Diff(want, p.sent); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if took := time.Since(p.begin); took != keptTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// A merger that follows sends the lines of nodes that join later and of nodes that come back,
// each line once.
func TestFollowAllNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLogPool()
		p.set("a", "b")
		p.kept("a", 0)
		p.plans["b"] = func(ctx context.Context, _ Query, asked int, send Send) error {
			switch asked {
			case 1:
				_ = errors.Join(send(nil), send(p.line("b", 1)), send(p.line("b", 2)))
				return errors.New("killed")
			case 2:
				return errors.New("still away")
			}
			_ = errors.Join(send(p.line("b", 2)), send(p.line("b", 3)), send(nil), send(p.line("b", 4)))
			<-ctx.Done()
			return ctx.Err()
		}
		p.kept("c", -1, 9)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.merger(Query{Lines: 1, Follow: true}).Run(ctx) }()
		time.Sleep(time.Minute)
		p.set("a", "b", "c")
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		want := []string{"a 0", "b 1", "b 2", "b the lines of node b are missing", "b 3", "b 4", "c 9"}
		if diff := cmp.Diff(want, p.sent); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}

// When the app is removed here, it is removed everywhere.
func TestFollowEndsWithTheApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newLogPool()
		p.set("a", "b")
		p.plans["a"] = func(_ context.Context, _ Query, _ int, send Send) error {
			time.Sleep(time.Second)
			return send(nil)
		}
		p.kept("b")
		if err := p.merger(Query{Follow: true}).Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
