package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/train/data"
)

// datasetsPrefix precedes NODE/NAME in the pool's table: the node writes its own datasets.
const datasetsPrefix = "datasets/"

// applyDataset applies a record of the table to the view.
func (m *Manager) applyDataset(key string, e state.Entry) (bool, error) {
	if e.Deleted {
		delete(m.sets, key)
		return true, nil
	}
	var d client.Dataset
	if err := state.DecodeJSON(e.Value, &d); err != nil {
		return false, err
	}
	if string(d.Node)+"/"+d.Name != key || data.CheckName(d.Name) != nil {
		return false, errors.New("the record has the name of another dataset")
	}
	m.sets[key] = d
	return true, nil
}

// Datasets returns the datasets of the pool, by name.
func (m *Manager) Datasets() []client.Dataset {
	m.view.Lock()
	defer m.view.Unlock()
	list := make([]client.Dataset, 0, len(m.sets))
	for _, d := range m.sets {
		list = append(list, d)
	}
	slices.SortFunc(list, func(a, b client.Dataset) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.Node), string(b.Node)))
	})
	return list
}

// Dataset returns the dataset that NODE/NAME names, or the dataset with a name: that of this node,
// else the only one of the pool.
func (m *Manager) Dataset(name string) (client.Dataset, error) {
	var found []client.Dataset
	for _, d := range m.Datasets() {
		switch {
		case name == string(d.Node)+"/"+d.Name, name == d.Name && d.Node == m.opts.Self:
			return d, nil
		case name == d.Name:
			found = append(found, d)
		}
	}
	switch len(found) {
	case 0:
		return client.Dataset{}, outboard.Errorf(outboard.NotFound, "", "there is no dataset %.70q: `outboard datasets` lists them", name)
	case 1:
		return found[0], nil
	}
	return client.Dataset{}, outboard.Errorf(outboard.Conflict, "", "%d nodes have a dataset %q: name one as NODE/%s", len(found), name, name)
}

// PutDataset records a dataset of this node with that manifest, and copies its chunks to this node.
func (m *Manager) PutDataset(ctx context.Context, name, digest string) (client.Dataset, error) {
	if err := data.CheckName(name); err != nil {
		return client.Dataset{}, err
	}
	manifest, err := data.Copy(ctx, m.opts.Chunks, digest)
	if err != nil {
		return client.Dataset{}, err
	}
	d := client.Dataset{
		Name: name, Node: m.opts.Self, Digest: digest, Files: len(manifest.Files), Size: outboard.Bytes(manifest.Size()), Created: time.Now().UTC(),
	}
	text, err := json.Marshal(d)
	if err != nil {
		return d, err
	}
	revision, err := m.opts.State.Put(ctx, datasetsPrefix+string(m.opts.Self)+"/"+name, text, 0)
	if err != nil {
		return d, fmt.Errorf("dataset %s, revision %d: %w", name, revision, err)
	}
	return d, nil
}

// DeleteDataset deletes the record of a dataset of this node.
func (m *Manager) DeleteDataset(ctx context.Context, name string) error {
	key := datasetsPrefix + string(m.opts.Self) + "/" + name
	e, err := m.opts.State.Get(ctx, key)
	if errors.Is(err, state.ErrNotFound) {
		return outboard.Errorf(outboard.NotFound, "", "this node has no dataset %.70q: `outboard datasets` lists them", name)
	}
	if err == nil {
		_, err = m.opts.State.Delete(ctx, key, e.Revision)
	}
	return err
}

// Chunk returns a part of a dataset.
func (m *Manager) Chunk(ctx context.Context, digest string) ([]byte, error) {
	return m.opts.Chunks.Get(ctx, digest)
}
