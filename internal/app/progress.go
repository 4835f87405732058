package app

import (
	"cmp"
	"errors"
	"slices"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/catalog"
)

// ErrOlder is the answer of a node whose program is too old to report its Progress.
var ErrOlder = errors.New("its program is too old to tell")

// Progress is a node's progress with an app. The zero value stands for a node that does not know
// the app.
type Progress struct {
	// Built is the version that was built last, with success or not, and Serving the version that
	// takes requests, 0 for none.
	Built, Serving int
	// Failure says why the version built last is not ready.
	Failure string
}

// NodeState returns a node's progress with one version. A later version counts as well.
func (p Progress) NodeState(version int) client.AppNode {
	n := client.AppNode{State: client.AppStarting, Serves: p.Serving}
	switch {
	case p.Serving >= version:
		n.State = client.AppReady
	case p.Built >= version && p.Failure != "":
		n.State, n.Reason = client.AppFailed, p.Failure
	}
	return n
}

// Progress returns this node's progress with the tenant's apps, by their names.
func (c *Deployments[F, W]) Progress() map[string]Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]Progress{}
	for name, e := range c.entries {
		p := Progress{Built: e.built, Serving: e.serving}
		if e.failure != nil {
			p.Failure = e.failure.Error()
		}
		all[name] = p
	}
	return all
}

// Survey is the progress of the pool's nodes with a tenant's apps.
type Survey struct {
	// Nodes has the answers by node and app, Failed the nodes that did not answer.
	Nodes  map[outboard.NodeID]map[string]Progress
	Failed map[outboard.NodeID]error
}

// NodeStates returns each node's progress with a version of an app, sorted by node. The states of a
// nil Survey are nil.
func (s *Survey) NodeStates(app string, version int) []client.AppNode {
	if s == nil {
		return nil
	}
	var all []client.AppNode
	for node, progress := range s.Nodes {
		n := progress[app].NodeState(version)
		n.Node = node
		all = append(all, n)
	}
	for node, err := range s.Failed {
		all = append(all, failedNode(node, err))
	}
	slices.SortFunc(all, func(a, b client.AppNode) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// failedNode returns the state of a node that did not report its progress.
func failedNode(node outboard.NodeID, err error) client.AppNode {
	if errors.Is(err, ErrOlder) {
		return client.AppNode{Node: node, State: client.AppUnknown, Reason: ErrOlder.Error()}
	}
	return client.AppNode{Node: node, State: client.AppSilent, Reason: err.Error()}
}

// Serving reports for each app whether a node serves it. A node with an older program counts for
// all: it became a member only when it served every app.
func (s *Survey) Serving(all []*catalog.Version) map[string]bool {
	older := false
	for _, err := range s.Failed {
		older = older || errors.Is(err, ErrOlder)
	}
	found := map[string]bool{}
	for _, v := range all {
		found[v.App.Name] = older
		for _, progress := range s.Nodes {
			if progress[v.App.Name].Serving > 0 {
				found[v.App.Name] = true
			}
		}
	}
	return found
}
