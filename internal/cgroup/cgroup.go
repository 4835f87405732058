// Package cgroup bounds the memory, the tasks and the processor time of groups of processes by the
// kernel's control groups, and ends all processes of a group together.
//
// A [Tree] is a subtree of the machine's control groups that belongs to one node. It uses version 2
// if that has the memory and pids controllers, and version 1 otherwise. A node that runs as root
// creates its subtree below its own group or below the root; any other node needs a group that was
// delegated to it (systemd: Delegate=yes). Otherwise the tree is not available: [Tree.Err] returns
// the reason, and its groups do nothing.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Limits bound a group. 0 means no limit.
type Limits struct {
	// Memory is in bytes, swap included.
	Memory int64
	// Tasks are processes and threads.
	Tasks int
	// Weight is the share of processor time against the group's siblings, DefaultWeight by default
	// and at most 10,000.
	Weight int
	// Load is what a group below the tree's root adds to the tree's load while it exists: 1 if this
	// process serves the group one request at a time, 2 if several. From a load of 2 on this process
	// has the weight of heavyMember groups (see Join).
	Load int
}

// DefaultWeight is the weight of a group for which no other was chosen.
const DefaultWeight = 100

// hierarchy is a tree of control groups: that of version 2, or one of version 1.
type hierarchy struct {
	parent      string // the folder in which the node creates its group
	v2          bool
	controllers map[string]bool
	// node is the group of this process, of version 2, if it was made for it; "" for others.
	node string
	// member is the group in the tree that this process has joined, and home where it was before.
	member, home string
}

// Tree is a node's subtree of control groups. A nil Tree is not available.
type Tree struct {
	root *Group
	err  error

	mu   sync.Mutex
	load int // of its groups
}

// Group is a control group. A nil Group stands for an unavailable one: it does nothing.
type Group struct {
	hierarchies []*hierarchy
	dirs        []string // one for each hierarchy
	weight      int      // 0: the kernel's default
	tree        *Tree    // nil for a group that adds no load
	load        int      // guarded by tree.mu
}

// Open creates the subtree of a node. First it ends and removes the groups that an earlier process
// of the same node left, and removes empty subtrees of other nodes that have ended. id consists of
// letters and digits, and is unique on this machine.
func Open(id string) *Tree {
	hierarchies, err := find()
	if err != nil {
		return &Tree{err: err}
	}
	g := &Group{hierarchies: hierarchies}
	for _, h := range hierarchies {
		if err := h.sweep(id); err != nil {
			return &Tree{err: fmt.Errorf("remove the control groups of an earlier node: %w", err)}
		}
		g.dirs = append(g.dirs, filepath.Join(h.parent, treePrefix+id+"-"+strconv.Itoa(os.Getpid())))
	}
	if err := g.create(Limits{}); err != nil {
		return &Tree{err: err}
	}
	return &Tree{root: g}
}

// procsFile lists the processes of a group.
const procsFile = "cgroup.procs"

// treePrefix is the prefix of the name of every node's subtree: outboard-ID-PID.
const treePrefix = "outboard-"

// sweep removes the subtrees that earlier processes of the node id left, with all their processes,
// and the empty subtrees of other nodes that have ended.
func (h *hierarchy) sweep(id string) error {
	entries, err := os.ReadDir(h.parent)
	if err != nil {
		return err
	}
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), treePrefix)
		owner, number, found := strings.Cut(rest, "-")
		pid, err := strconv.Atoi(number)
		if !ok || !found || err != nil || pid <= 0 {
			continue
		}
		dir := filepath.Join(h.parent, e.Name())
		if owner == id {
			if err := (&Group{hierarchies: []*hierarchy{h}, dirs: []string{dir}}).Remove(); err != nil {
				return err
			}
		} else if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = removeDirs(dir) // fails if there are processes left, which another node has to end
		}
	}
	return nil
}

// errNone is the error of a nil Tree.
var errNone = errors.New("control groups are not used")

// Err returns the reason that there are no control groups; nil if there are.
func (t *Tree) Err() error {
	if t == nil {
		return errNone
	}
	return t.err
}

// Make creates a group below the root of the tree. It returns nil if the tree is not available.
func (t *Tree) Make(name string, l Limits) (*Group, error) {
	g, err := t.available().Make(name, l)
	if g == nil || err != nil {
		return nil, err
	}
	g.tree = t
	if err := t.setLoad(g, l.Load); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// available returns the root of the tree, nil if the tree is not available.
func (t *Tree) available() *Group {
	if t == nil || t.err != nil {
		return nil
	}
	return t.root
}

// Make creates a group below g. g itself must have no processes: they must be in other children.
func (g *Group) Make(name string, l Limits) (*Group, error) {
	if g == nil {
		return nil, nil //nolint:nilnil // a nil Group does nothing
	}
	if name == "" || name[0] == '.' || strings.ContainsRune(name, '/') {
		return nil, fmt.Errorf("control group: %q is no name of one", name)
	}
	child := &Group{hierarchies: g.hierarchies}
	for i, h := range g.hierarchies {
		if err := h.delegateControllers(g.dirs[i]); err != nil {
			return nil, err
		}
		child.dirs = append(child.dirs, filepath.Join(g.dirs[i], name))
	}
	if err := child.create(l); err != nil {
		return nil, errors.Join(err, child.Remove())
	}
	return child, nil
}

// delegateControllers delegates the controllers to the children of a group of version 2, so that they can be
// bounded.
func (h *hierarchy) delegateControllers(dir string) error {
	if !h.v2 || len(h.controllers) == 0 {
		return nil
	}
	var list []string
	for c := range h.controllers {
		list = append(list, "+"+c)
	}
	if err := write(filepath.Join(dir, "cgroup.subtree_control"), strings.Join(list, " ")); err != nil {
		return fmt.Errorf("control group: pass controllers on: %w", err)
	}
	return nil
}

func (g *Group) create(l Limits) error {
	g.weight = l.Weight
	for i, h := range g.hierarchies {
		if err := os.Mkdir(g.dirs[i], 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("control group: %w", err)
		}
		for _, s := range h.settings(l) {
			err := write(filepath.Join(g.dirs[i], s.file), s.text)
			if err != nil && (!s.optional || !errors.Is(err, fs.ErrNotExist)) {
				return fmt.Errorf("control group: %w", err)
			}
		}
	}
	return nil
}

// Add moves a process and all its threads into the group. Processes that it starts later belong to
// the group, too.
func (g *Group) Add(pid int) error {
	if g == nil {
		return nil
	}
	for _, dir := range g.dirs {
		if err := write(filepath.Join(dir, procsFile), strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("control group: add process %d: %w", pid, err)
		}
	}
	return nil
}

// Contains reports whether a process is in the group or in one below it. The calling process never
// is: in version 1 a group also lists the process of a thread that Begin has moved there.
func (g *Group) Contains(pid int) bool {
	if g == nil || pid == os.Getpid() {
		return false
	}
	found := false
	// Every hierarchy has the same processes.
	_ = filepath.WalkDir(g.dirs[0], func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && slices.Contains(processes(path), pid) {
			found = true
			return fs.SkipAll
		}
		return nil // a group that is gone has no processes
	})
	return found
}

// Kill ends every process of the group and of the groups below it.
func (g *Group) Kill() {
	if g == nil {
		return
	}
	for _, dir := range g.dirs {
		if write(filepath.Join(dir, "cgroup.kill"), "1") == nil {
			return // every hierarchy has the same processes
		}
	}
	for _, dir := range g.dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				killProcesses(path)
			}
			return nil
		})
	}
}

// killProcesses ends the processes of a group one by one, on a kernel that can't end them together.
// If there is a pids controller they can't start others meanwhile.
func killProcesses(dir string) {
	_ = write(filepath.Join(dir, "pids.max"), "0")
	for _, pid := range processes(dir) {
		if pid != os.Getpid() { // a thread of which may be in the group: see Begin
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func processes(dir string) []int {
	text, err := os.ReadFile(filepath.Join(dir, procsFile))
	if err != nil {
		return nil
	}
	var pids []int
	for field := range strings.FieldsSeq(string(text)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// removeLimit is how long killed processes may take to end. A process that waits for a device in
// its driver can't be ended earlier.
const removeLimit = 5 * time.Second

// Remove ends every process of the group and removes it, with the groups below it.
func (g *Group) Remove() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.tree.setLoad(g, 0), g.remove())
}

func (g *Group) remove() error {
	deadline := time.Now().Add(removeLimit)
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		var errs []error
		for _, dir := range g.dirs {
			errs = append(errs, removeDirs(dir))
		}
		err := errors.Join(errs...)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("control group: its processes do not end: %w", err)
		}
		g.Kill()
		time.Sleep(pause)
	}
}

// removeDirs removes a folder of groups, the deepest first.
func removeDirs(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeDirs(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

// Killed returns how many processes of the group the kernel has killed because the group's memory
// ran out.
func (g *Group) Killed() int {
	if g == nil {
		return 0
	}
	for _, dir := range g.dirs {
		for _, file := range []string{"memory.events", "memory.oom_control"} {
			text, err := os.ReadFile(filepath.Join(dir, file))
			if err != nil {
				continue
			}
			for line := range strings.Lines(string(text)) {
				if name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name == "oom_kill" {
					n, _ := strconv.Atoi(value) // the kernel writes valid numbers
					return n
				}
			}
		}
	}
	return 0
}

// write writes to an existing file: the kernel creates the files.
func write(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
