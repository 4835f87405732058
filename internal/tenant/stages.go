package tenant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// A stage is how far a process is with an app. The zero value has not heard of it.
type stage struct {
	// Wanted is the version that was built last, well or not, and Serves the one that takes
	// requests, 0 for none.
	Wanted int `json:"wanted,omitempty"`
	Serves int `json:"serves,omitempty"`
	// Failure says why the wanted one is not ready.
	Failure string `json:"failure,omitempty"`
}

// with is how far that is with a version. A later one, which somebody deployed meanwhile, is
// as good.
func (s stage) with(version int) client.AppNode {
	n := client.AppNode{State: client.AppStarting, Serves: s.Serves}
	switch {
	case s.Serves >= version:
		n.State = client.AppReady
	case s.Wanted >= version && s.Failure != "":
		n.State, n.Reason = client.AppFailed, s.Failure
	}
	return n
}

// stages are how far this process is with its apps.
func (t *Tenant) stages() map[string]stage {
	t.apps.mu.Lock()
	defer t.apps.mu.Unlock()
	all := map[string]stage{}
	for name, p := range t.apps.places {
		s := stage{Wanted: p.wanted, Serves: p.served}
		if p.failure != nil {
			s.Failure = p.failure.Error()
		}
		all[name] = s
	}
	return all
}

func (t *Tenant) stagesForPeer(context.Context, []byte, []byte) ([]byte, any, error) {
	text, err := json.Marshal(t.stages())
	return text, nil, err
}

// stagesLimit is how long nodes may take to tell how far they are.
const stagesLimit = 2 * time.Second

// pooled is how far the pool's nodes are with the tenant's apps.
type pooled struct {
	told   map[outboard.NodeID]map[string]stage
	failed map[outboard.NodeID]error
}

// askStages asks all nodes.
func (t *Tenant) askStages(ctx context.Context) *pooled {
	ctx, cancel := context.WithTimeout(ctx, stagesLimit)
	defer cancel()
	var p pooled
	p.told, p.failed = askAll(ctx, t.members.others(t.config.Node), t.peers.stages)
	p.told[t.config.Node] = t.stages()
	return &p
}

// with is how far each node is with a version of an app, by their names. Nobody was asked:
// nil.
func (p *pooled) with(app string, version int) []client.AppNode {
	if p == nil {
		return nil
	}
	var all []client.AppNode
	for node, stages := range p.told {
		n := stages[app].with(version)
		n.Node = node
		all = append(all, n)
	}
	for node, err := range p.failed {
		all = append(all, untold(node, err))
	}
	slices.SortFunc(all, func(a, b client.AppNode) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// untold is a node that did not say how far it is.
func untold(node outboard.NodeID, err error) client.AppNode {
	if errors.Is(err, errOld) {
		return client.AppNode{Node: node, State: client.AppUnknown, Reason: err.Error()}
	}
	return client.AppNode{Node: node, State: client.AppSilent, Reason: err.Error()}
}

// getAppNodes tells how far the nodes are with a version of an app, the one in force where
// none is named.
func (t *Tenant) getAppNodes(r *http.Request) ([]client.AppNode, error) {
	name, version := r.PathValue("app"), max(numberOf(r, "version"), 1)
	ctx, cancel := context.WithTimeout(r.Context(), stagesLimit)
	defer cancel()
	if err := t.apps.registry.Await(ctx, name, version); err != nil {
		return nil, err
	}
	if err := t.own(name); err != nil {
		return nil, err
	}
	if r.URL.Query().Get("version") == "" {
		app, _ := t.apps.registry.Get(name)
		if v := app.Current(); v != nil {
			version = v.Number
		}
	}
	return t.askStages(r.Context()).with(name, version), nil
}
