package tenant

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A logGatherer tells the lines of all nodes: first, in their order, what is kept of
// them, then what they tell as they do. A node that does not answer is named in a line,
// and asked again.
type logGatherer struct {
	query   logQuery
	self    outboard.NodeID
	here    func(context.Context, logQuery, logTeller) error
	there   func(context.Context, outboard.NodeID, logQuery, logTeller) error
	members *members
	tell    func([]client.LogLine) error

	asking sync.WaitGroup
	heard  chan logPart
	nodes  map[outboard.NodeID]*logSource
}

// A logSource is a node that tells its lines.
type logSource struct {
	asked  bool      // and has not ended
	silent bool      // and has not told all that it kept
	warned bool      // whoever reads knows that its lines are missing
	last   time.Time // of its newest line
}

// A logPart is something that a node told.
type logPart struct {
	node  outboard.NodeID
	lines []client.LogLine // none: that was what it kept
	ended bool
	err   error
}

const (
	// logPatience is how long nodes may take to tell what they kept.
	logPatience = 3 * time.Second
	// logRetry is how long after its end a node is asked again.
	logRetry = 2 * time.Second
)

func (g *logGatherer) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer g.asking.Wait()
	defer cancel()
	g.heard, g.nodes = make(chan logPart), map[outboard.NodeID]*logSource{}
	begin := time.Now()
	changed := g.members.Changed()
	g.askAll(ctx, begin)
	if err := g.gather(ctx); err != nil || !g.query.Follow {
		return err
	}
	g.query.Lines = 0 // of who comes later, all that is newer
	retry := time.NewTicker(logRetry)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-changed:
			changed = g.members.Changed()
			g.askAll(ctx, begin)
		case <-retry.C:
			g.askAll(ctx, begin)
		case part := <-g.heard:
			if part.ended && part.node == g.self {
				return part.err // the app is gone
			}
			if err := g.tell(g.hear(part)); err != nil {
				return err
			}
		}
	}
}

// askAll asks all nodes that are not being asked.
func (g *logGatherer) askAll(ctx context.Context, begin time.Time) {
	for _, node := range append(g.members.others(g.self), g.self) {
		s := g.nodes[node]
		if s == nil {
			s = &logSource{last: begin}
			g.nodes[node] = s
		}
		if !s.asked {
			s.asked, s.silent = true, true
			q := g.query
			g.asking.Go(func() { g.ask(ctx, node, q) })
		}
	}
}

// ask has a node tell its lines until it ends or ctx does.
func (g *logGatherer) ask(ctx context.Context, node outboard.NodeID, q logQuery) {
	say := func(p logPart) error {
		select {
		case g.heard <- p:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	tell := func(lines []client.LogLine) error { return say(logPart{node: node, lines: lines}) }
	var err error
	if node == g.self {
		err = g.here(ctx, q, tell)
	} else {
		err = g.there(ctx, node, q, tell)
	}
	_ = say(logPart{node: node, ended: true, err: err}) // nobody listens any more
}

// gather tells what the nodes have kept, as one log.
func (g *logGatherer) gather(ctx context.Context) error {
	timer := time.NewTimer(logPatience)
	defer timer.Stop()
	var kept, newer, warnings []client.LogLine
	for late := false; g.silent() && !late; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case part := <-g.heard:
			if g.nodes[part.node].silent {
				kept = append(kept, part.lines...)
			} else {
				newer = append(newer, part.lines...)
			}
			warnings = append(warnings, g.note(part)...)
		case <-timer.C:
			late = true
			for node, s := range g.nodes {
				if s.silent {
					warnings = append(warnings, g.warning(node, fmt.Errorf("no answer for %v", logPatience))...)
				}
			}
		}
	}
	slices.SortStableFunc(kept, func(a, b client.LogLine) int { return a.Time.Compare(b.Time) })
	if g.query.Lines > 0 {
		kept = kept[max(0, len(kept)-g.query.Lines):]
	}
	return g.tell(slices.Concat(kept, newer, warnings))
}

// silent reports whether some node has not told all that it kept.
func (g *logGatherer) silent() bool {
	for _, s := range g.nodes {
		if s.silent {
			return true
		}
	}
	return false
}

// hear returns the lines of a part that are new, and a warning.
func (g *logGatherer) hear(p logPart) []client.LogLine {
	s := g.nodes[p.node]
	if n := len(p.lines); n > 0 && s.silent && !p.lines[n-1].Time.After(s.last) {
		return nil // told before
	}
	return append(p.lines, g.note(p)...)
}

// note takes account of a part. It returns a warning, or nothing.
func (g *logGatherer) note(p logPart) []client.LogLine {
	s := g.nodes[p.node]
	switch n := len(p.lines); {
	case p.ended:
		s.asked, s.silent = false, false
		return g.warning(p.node, p.err)
	case n == 0:
		s.silent, s.warned = false, false
	case p.lines[n-1].Time.After(s.last):
		s.last = p.lines[n-1].Time
	}
	return nil
}

// warning is a line about a node whose lines can't be told, once.
func (g *logGatherer) warning(node outboard.NodeID, err error) []client.LogLine {
	s := g.nodes[node]
	if err == nil || s.warned {
		return nil
	}
	s.warned = true
	return []client.LogLine{{
		Time: time.Now(), Node: node, App: g.query.App, Stream: client.WarningStream,
		Text: fmt.Sprintf("the lines of node %s are missing: %v", node, err),
	}}
}
