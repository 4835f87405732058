// Package logs merges the log lines of an app from all nodes.
package logs

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// Query selects lines of an app's log.
type Query struct {
	App      string
	Function string // "" for all
	Lines    int    // the newest so many, 0 for all kept lines
	Follow   bool
}

// Send sends lines; a call without lines says that all kept lines have been sent. An error ends the
// stream.
type Send func([]client.LogLine) error

// Members are the nodes of the pool.
type Members interface {
	Changed() <-chan struct{}
	Peers() []outboard.NodeID
}

// Merger sends the lines of all nodes: first the kept lines, sorted by time, then new lines as they
// arrive. A node that does not answer is named in a warning, and tried again.
type Merger struct {
	Query   Query
	Self    outboard.NodeID
	Local   func(context.Context, Query, Send) error
	Remote  func(context.Context, outboard.NodeID, Query, Send) error
	Members Members
	Send    Send

	streams sync.WaitGroup
	parts   chan part
	nodes   map[outboard.NodeID]*source
}

// source is the stream of one node.
type source struct {
	open    bool      // the stream has not ended
	pending bool      // the stream has not sent all kept lines
	warned  bool      // a warning has reported that its lines are missing
	last    time.Time // of its newest line
}

// part is a message of a node's stream.
type part struct {
	node  outboard.NodeID
	lines []client.LogLine // none: all kept lines have been sent
	ended bool
	err   error
}

const (
	// keptTimeout is how long nodes may take to send their kept lines.
	keptTimeout = 3 * time.Second
	// retryInterval is how long after its end a stream is opened again.
	retryInterval = 2 * time.Second
)

// Run merges until ctx ends or the app is removed.
func (g *Merger) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer g.streams.Wait()
	defer cancel()
	g.parts, g.nodes = make(chan part), map[outboard.NodeID]*source{}
	begin := time.Now()
	changed := g.Members.Changed()
	g.openStreams(ctx, begin)
	if err := g.sendKept(ctx); err != nil || !g.Query.Follow {
		return err
	}
	g.Query.Lines = 0 // a node that joins later sends all newer lines
	retry := time.NewTicker(retryInterval)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			changed = g.Members.Changed()
			g.openStreams(ctx, begin)
		case <-retry.C:
			g.openStreams(ctx, begin)
		case p := <-g.parts:
			if p.ended && p.node == g.Self {
				return p.err // the app was removed
			}
			if err := g.Send(g.newLines(p)); err != nil {
				return err
			}
		}
	}
}

// openStreams opens the streams of all nodes that have none.
func (g *Merger) openStreams(ctx context.Context, begin time.Time) {
	for _, node := range append(g.Members.Peers(), g.Self) {
		s := g.nodes[node]
		if s == nil {
			s = &source{last: begin}
			g.nodes[node] = s
		}
		if !s.open {
			s.open, s.pending = true, true
			q := g.Query
			g.streams.Go(func() { g.stream(ctx, node, q) })
		}
	}
}

// stream passes on a node's lines until its stream or ctx ends.
func (g *Merger) stream(ctx context.Context, node outboard.NodeID, q Query) {
	pass := func(p part) error {
		select {
		case g.parts <- p:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	send := func(lines []client.LogLine) error { return pass(part{node: node, lines: lines}) }
	var err error
	if node == g.Self {
		err = g.Local(ctx, q, send)
	} else {
		err = g.Remote(ctx, node, q, send)
	}
	_ = pass(part{node: node, ended: true, err: err}) // an error: Run has returned
}

// sendKept sends the nodes' kept lines as one log.
func (g *Merger) sendKept(ctx context.Context) error {
	timer := time.NewTimer(keptTimeout)
	defer timer.Stop()
	var kept, newer, warnings []client.LogLine
	for late := false; g.anyPending() && !late; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-g.parts:
			if g.nodes[p.node].pending {
				kept = append(kept, p.lines...)
			} else {
				newer = append(newer, p.lines...)
			}
			warnings = append(warnings, g.update(p)...)
		case <-timer.C:
			late = true
			for node, s := range g.nodes {
				if s.pending {
					warnings = append(warnings, g.warning(node, fmt.Errorf("no answer for %v", keptTimeout))...)
				}
			}
		}
	}
	slices.SortStableFunc(kept, func(a, b client.LogLine) int { return a.Time.Compare(b.Time) })
	if g.Query.Lines > 0 {
		kept = kept[max(0, len(kept)-g.Query.Lines):]
	}
	return g.Send(slices.Concat(kept, newer, warnings))
}

// anyPending reports whether a node has not sent all its kept lines.
func (g *Merger) anyPending() bool {
	for _, s := range g.nodes {
		if s.pending {
			return true
		}
	}
	return false
}

// newLines returns the lines of a part that were not sent before, and a warning.
func (g *Merger) newLines(p part) []client.LogLine {
	s := g.nodes[p.node]
	if n := len(p.lines); n > 0 && s.pending && !p.lines[n-1].Time.After(s.last) {
		return nil // sent before the stream was opened again
	}
	return append(p.lines, g.update(p)...)
}

// update records a part in its source. It returns a warning, or nothing.
func (g *Merger) update(p part) []client.LogLine {
	s := g.nodes[p.node]
	switch n := len(p.lines); {
	case p.ended:
		s.open, s.pending = false, false
		return g.warning(p.node, p.err)
	case n == 0:
		s.pending, s.warned = false, false
	case p.lines[n-1].Time.After(s.last):
		s.last = p.lines[n-1].Time
	}
	return nil
}

// warning returns a line that reports that a node's lines are missing, once for each node.
func (g *Merger) warning(node outboard.NodeID, err error) []client.LogLine {
	s := g.nodes[node]
	if err == nil || s.warned {
		return nil
	}
	s.warned = true
	return []client.LogLine{{
		Time: time.Now(), Node: node, App: g.Query.App, Stream: client.WarningStream,
		Text: fmt.Sprintf("the lines of node %s are missing: %v", node, err),
	}}
}
