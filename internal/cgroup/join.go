package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// memberGroup is the name of the group of the process that has joined its tree.
const memberGroup = "node"

// From a load of highLoad on this process has the weight of heavyMember groups of its tree, so that the
// requests of one do not wait for what it does for another. Below that it has the weight of one: while a
// heavier process spins for a worker's reply, the worker does not run (record 0014, "The weight of the
// node").
const (
	highLoad    = 2
	heavyMember = 8
)

// Join moves this process, with the processes that it has started or will start, into a group of the
// tree: it competes for processors with the tree's groups, by its weight, as one of them. Beside the
// tree it would have half of what the machine has for both, and a group of the tree that uses little
// would wait with those that use the rest. Other bounds of this process do not change. Close reverses
// it. One tree of a process may be joined.
func (t *Tree) Join() error {
	g := t.available()
	if g == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, h := range g.hierarchies {
		if !h.controllers["cpu"] || h.v2 && h.node == "" { // its processes are managed by others
			continue
		}
		if err := h.join(g.dirs[i], t.memberWeight()); err != nil {
			return fmt.Errorf("control group: join: %w", errors.Join(err, h.leave()))
		}
	}
	return nil
}

// setLoad sets what a group adds to the load of the tree, which decides the weight of this process in
// it.
func (t *Tree) setLoad(of *Group, load int) error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.memberWeight()
	t.load += load - of.load
	of.load = load
	if t.memberWeight() == before {
		return nil
	}
	for _, h := range t.root.hierarchies {
		if h.member == "" {
			continue
		}
		if err := h.setWeight(h.member, t.memberWeight()); err != nil {
			return fmt.Errorf("control group: %w", err)
		}
	}
	return nil
}

// memberWeight returns the weight of this process in the tree.
func (t *Tree) memberWeight() int {
	if t.load >= highLoad {
		return heavyMember * DefaultWeight
	}
	return DefaultWeight
}

// join moves this process into a group of the tree in a folder.
func (h *hierarchy) join(tree string, weight int) error {
	if err := h.delegateControllers(tree); err != nil {
		return err
	}
	member := filepath.Join(tree, memberGroup)
	if err := os.Mkdir(member, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := h.setWeight(member, weight); err != nil {
		return err
	}
	if h.home = h.node; !h.v2 {
		// The tree has the weight of this process, too.
		if err := h.setWeight(tree, 200); err != nil {
			return err
		}
		h.home = h.parent
	}
	h.member = member
	return h.moveProcesses(h.home, member)
}

// setWeight sets the weight of a group among its siblings.
func (h *hierarchy) setWeight(dir string, weight int) error {
	s := h.weightSetting(weight)
	return write(filepath.Join(dir, s.file), s.text)
}

// leave moves this process, and those in its group, back to where they came from.
func (h *hierarchy) leave() error {
	if h.member == "" {
		return nil
	}
	member := h.member
	h.member = ""
	return h.moveProcesses(member, h.home)
}

// moveProcesses moves this process from one group to another and, from a group of its own, the
// processes that it has started.
func (h *hierarchy) moveProcesses(from, to string) error {
	err := write(filepath.Join(to, procsFile), strconv.Itoa(os.Getpid()))
	if from == h.parent {
		return err // which may have thousands of others
	}
	for _, pid := range processes(from) {
		if pid != os.Getpid() && descends(pid) {
			_ = write(filepath.Join(to, procsFile), strconv.Itoa(pid)) // it may have ended
		}
	}
	return err
}

// own returns the group of this process: the one that threads return to.
func (h *hierarchy) own() string {
	if h.member != "" {
		return h.member
	}
	return h.parent
}

// Close ends all processes in the tree but this one and its helpers, and removes it.
func (t *Tree) Close() error {
	g := t.available()
	if g == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	for _, h := range g.hierarchies {
		errs = append(errs, h.leave())
	}
	return errors.Join(append(errs, g.Remove())...)
}
