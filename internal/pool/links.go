package pool

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// linkPrefix precedes the name of a node in the key of its measured links.
const linkPrefix = "network/"

// maxLinks bounds the links of one node.
const maxLinks = 32

// PublishLinks writes the links that this node has measured into the table, for ttl.
func (p *Pool) PublishLinks(ctx context.Context, links []client.Link, ttl time.Duration) error {
	text, err := json.Marshal(links[:min(len(links), maxLinks)])
	if err != nil {
		return err
	}
	_, err = p.state.Put(ctx, linkPrefix+string(p.view.self), text, ttl)
	return err
}

// Links returns the links that present nodes have published.
func (p *Pool) Links() []client.Link {
	v := p.view
	v.mu.Lock()
	defer v.mu.Unlock()
	var all []client.Link
	for from, links := range v.links {
		if v.all[from] != nil {
			all = append(all, links...)
		}
	}
	return all
}

// applyLinks applies the links of one node. No waiter waits for a change of links.
func (v *view) applyLinks(from outboard.NodeID, e state.Entry) error {
	if e.Deleted {
		delete(v.links, from)
		return nil
	}
	var links []client.Link
	if err := json.Unmarshal(e.Value, &links); err != nil {
		return err
	}
	if len(links) > maxLinks {
		return fmt.Errorf("%d links of one node: want at most %d", len(links), maxLinks)
	}
	for i := range links {
		links[i].From = from // The key is the node's own; the value may name another node.
		if err := checkLink(&links[i]); err != nil {
			return err
		}
	}
	v.links[from] = links
	return nil
}

// The bounds of a link's values: what no probe measures would break the figures of others.
const (
	maxLinkName  = 255
	maxRoundTrip = time.Minute
	maxRate      = 1e15 // bytes/s
)

func checkLink(l *client.Link) error {
	if len(l.To) > maxLinkName {
		return fmt.Errorf("a link to a node whose name has %d bytes", len(l.To))
	}
	for _, d := range []time.Duration{l.RTT, l.RTTSpread, l.MinRTT} {
		if d < 0 || d > maxRoundTrip {
			return fmt.Errorf("a link with a round trip of %v", d)
		}
	}
	for _, r := range []float64{l.Forward, l.Backward, l.ForwardSpread, l.BackwardSpread} {
		if r < 0 || r > maxRate {
			return fmt.Errorf("a link of %g bytes/s", r)
		}
	}
	if l.Loss < 0 || l.Loss > 1 || l.Samples < 0 {
		return fmt.Errorf("a link with a loss of %g in %d probes", l.Loss, l.Samples)
	}
	return checkTime(l.Measured)
}

// checkTime returns an error for a time that can be read from JSON, and not be written to it: the
// answers of this node would end in the middle.
func checkTime(t time.Time) error {
	_, err := t.MarshalJSON()
	return err
}
