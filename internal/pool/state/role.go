package state

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

const (
	roleFile = "role.json"
	// maxPeers bounds how many other nodes a node remembers: enough to find the
	// pool again, however large it is.
	maxPeers = 16
)

// A mode is a node's part in the pool's state.
type mode string

const (
	// alone: the founder keeps the only copy, in a server without a cluster.
	alone mode = "alone"
	// guest: the node keeps no copy and runs no server; it sends requests to nodes that do.
	guest mode = "guest"
	// voter: the node is one of three that keep a copy each.
	voter mode = "voter"
)

// A role is a node's persistent part in the pool's state.
type role struct {
	dir string

	mu   sync.Mutex
	data roleData
}

type roleData struct {
	Mode mode `json:"mode"`
	// Ready says that a voter's cluster holds the table. Until then the node continues to send its
	// requests to nodes that hold it.
	Ready bool `json:"ready,omitempty"`
	// Import says that the founder still has to bring the table into the cluster.
	Import bool `json:"import,omitempty"`
	// Route is the address at which other voters reach this node, kept from the first start on.
	Route string `json:"route,omitempty"`
	// Routes are the routes of all voters.
	Routes []string `json:"routes,omitempty"`
	// Peers are addresses of other nodes, nodes with copies first.
	Peers []string `json:"peers,omitempty"`
}

// loadRole reads the role from dir. A node without one founds a pool unless it knows peers.
func loadRole(dir string, peers []string) (*role, error) {
	r := &role{dir: dir}
	text, err := os.ReadFile(filepath.Join(dir, roleFile))
	switch {
	case errors.Is(err, fs.ErrNotExist) && len(peers) == 0:
		r.data = roleData{Mode: alone, Ready: true}
	case errors.Is(err, fs.ErrNotExist):
		r.data = roleData{Mode: guest}
	case err != nil:
		return nil, fmt.Errorf("read the node's role: %w", err)
	default:
		if err := json.Unmarshal(text, &r.data); err != nil {
			return nil, fmt.Errorf("read the node's role in %s: %w", dir, err)
		}
	}
	err = r.change(func(d *roleData) {
		// First, since they were named by the operator of this start.
		d.Peers = slices.Concat(peers, slices.DeleteFunc(d.Peers, func(addr string) bool { return slices.Contains(peers, addr) }))
	})
	return r, err
}

func (r *role) get() roleData {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.data
	d.Peers, d.Routes = slices.Clone(d.Peers), slices.Clone(d.Routes)
	return d
}

// change alters the role on disk, then in memory.
func (r *role) change(f func(*roleData)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.data
	f(&d)
	text, err := json.MarshalIndent(d, "", "  ")
	if err != nil {
		return fmt.Errorf("write the node's role: %w", err)
	}
	if err := writeFile(filepath.Join(r.dir, roleFile), text); err != nil {
		return err
	}
	r.data = d
	return nil
}

// setPeers replaces the remembered peers. It ignores an empty list, which would isolate the
// node at its next start.
func (r *role) setPeers(peers []string) error {
	peers = peers[:min(len(peers), maxPeers)]
	if len(peers) == 0 || slices.Equal(peers, r.get().Peers) {
		return nil
	}
	return r.change(func(d *roleData) { d.Peers = slices.Clone(peers) })
}

// writeFile replaces a file so that a crash leaves the old or the new one.
func writeFile(path string, text []byte) error {
	return replaceFile(path, func(w io.Writer) error {
		_, err := w.Write(text)
		return err
	})
}

// replaceFile is writeFile for content that is not in memory.
func replaceFile(path string, write func(io.Writer) error) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(tmp.Name())
	err = write(tmp)
	err = errors.Join(err, tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// RememberPeers makes a node that has not opened its state yet join the pool of these peers at
// its next start, should it be stopped before then.
func RememberPeers(dir string, peers []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("remember the pool: %w", err)
	}
	_, err := loadRole(dir, peers)
	return err
}
