package pool

import (
	"context"
	"fmt"

	"github.com/outboard-run/outboard"
)

// Members is a read-only view of a pool for a process that is not a member: a helper process
// of a node.
type Members struct {
	view *view
	stop context.CancelFunc
}

// Follow watches the pool of opts.State. Of the other options it needs Identity, Self's Boot,
// Logger, Heartbeat and NodeTTL.
func Follow(ctx context.Context, opts Options) (*Members, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	run, stop := context.WithCancel(context.Background())
	m := &Members{view: newView(opts), stop: stop}
	watch, cancel := context.WithCancel(run)
	defer context.AfterFunc(ctx, cancel)()
	if err := opts.State.Watch(watch, m.view.apply); err != nil {
		stop()
		return nil, fmt.Errorf("follow the pool: %w", err)
	}
	go m.followIdentity(run, opts.Heartbeat)
	return m, nil
}

// Node returns the record of a present node.
func (m *Members) Node(id outboard.NodeID) (outboard.Node, bool) { return m.view.node(id) }

// Nodes returns the present nodes, by name.
func (m *Members) Nodes() []outboard.Node { return m.view.nodes() }

// Changed returns a channel that is closed at the next change.
func (m *Members) Changed() <-chan struct{} { return m.view.changed() }

// Close stops following.
func (m *Members) Close() error {
	m.stop()
	return nil
}
