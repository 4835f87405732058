package deptest

import "fmt"

// A Layer is a layer of the architecture: its packages may import packages of lower layers.
type Layer struct {
	Name string
	// Groups are the parts of the layer. Packages of one group may import each other, packages of
	// two groups of one layer must not.
	Groups []Group
}

// A Group is a set of trees, folders relative to the root of the module; "." is the root package
// alone, every other tree includes everything below it.
type Group []string

// Layers returns the layers, lowest first.
func Layers() []Layer {
	return []Layer{
		{Name: "vocabulary", Groups: []Group{{"."}}},
		{Name: "mechanisms", Groups: []Group{{
			"internal/lifecycle", "internal/wire", "internal/shm", "internal/ipc", "internal/helper", "internal/acceptor", "internal/health", "internal/unixsock", "internal/netconn", "internal/freeport", "internal/wasmbin",
			"internal/sandbox", "internal/cgroup", "internal/proctree", "internal/rmtree", "internal/timeslice", "internal/quota", "internal/egress", "internal/datadir", "internal/need", "internal/disktest", "internal/metricstest", "internal/spell", "internal/lazyregexp", "internal/yamlerror", "internal/lograte", "internal/traces", "internal/plot", "internal/deptest",
		}, {"guest"}}},
		{Name: "the node's API", Groups: []Group{{"client", "internal/api"}, {"python"}}},
		{Name: "shared services", Groups: []Group{{"fabric", "internal/fabric"}, {"internal/pool"}, {"internal/artifact"}, {"internal/cost"}}},
		{Name: "planes", Groups: []Group{
			{"internal/accel"},
			{"internal/function"},
			{"internal/workflow"},
			{"internal/model"},
			{"internal/train"},
			{"internal/gateway"},
			{"internal/app"},
		}},
		{Name: "processes", Groups: []Group{{"internal/calls"}, {"internal/tenant"}}},
		{Name: "node", Groups: []Group{{"internal/node"}}},
		{Name: "commands", Groups: []Group{{"internal/cli", "outboardtest"}}},
		{Name: "programs", Groups: []Group{{"cmd", "bench", "test", "examples", "packaging", "tools"}}},
	}
}

// Check returns one line for every package that has no comment, belongs to no layer, or imports a
// package against the direction of layers.
func Check(packages []Package, layers []Layer) []string {
	var wrong []string
	for _, p := range packages {
		if p.Synopsis == "" {
			wrong = append(wrong, fmt.Sprintf("%s: no package comment that begins with its name", p.Dir))
		}
		from := locate(layers, p.Dir)
		if from.layer < 0 {
			wrong = append(wrong, fmt.Sprintf("%s: belongs to no layer; add it to one in internal/deptest/layers.go", p.Dir))
			continue
		}
		for _, dir := range p.Imports {
			if reason := forbidden(layers, from, locate(layers, dir)); reason != "" {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", p.Dir, dir, reason))
			}
		}
	}
	return wrong
}

// forbidden returns the reason for which a package at from may not import a package at to, or "".
func forbidden(layers []Layer, from, to position) string {
	switch {
	case to.layer < 0:
		return "it belongs to no layer"
	case to.layer > from.layer:
		return fmt.Sprintf("%s do not know %s", layers[from.layer].Name, layers[to.layer].Name)
	case to.layer == from.layer && to.group != from.group:
		return "groups of one layer never import each other; declare a small interface, and let a layer above join them"
	}
	return ""
}

// A position is the position of a package in the layers; its layer is -1 if it belongs to none.
type position struct{ layer, group int }

// locate returns the position of dir: that of the longest tree that includes it.
func locate(layers []Layer, dir string) position {
	found, longest := position{-1, -1}, ""
	for i, l := range layers {
		for j, g := range l.Groups {
			for _, tree := range g {
				if holds(tree, dir) && len(tree) > len(longest) {
					found, longest = position{i, j}, tree
				}
			}
		}
	}
	return found
}
