package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// useful are the controllers that bound groups. A tree without the first two is not used.
var useful = []string{"memory", "pids", "cpu"}

// mount is a file system of control groups, and this process's group in it.
type mount struct {
	point       string
	own         string // relative to point
	controllers []string
	v2          bool
}

// find returns the hierarchies in which this process may create groups.
func find() ([]*hierarchy, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("this kernel has no control groups: %w", err)
	}
	return choose(parse(string(mounts), string(own)))
}

// choose prefers version 2, and uses it to end groups together even if the controllers are those of
// version 1.
func choose(mounts []mount) ([]*hierarchy, error) {
	var found []*hierarchy
	have := map[string]bool{}
	var two *mount
	for i := range mounts {
		m := &mounts[i]
		if m.v2 {
			two = m
			available, _ := os.ReadFile(filepath.Join(m.own, "cgroup.controllers"))
			m.controllers = strings.Fields(string(available))
		}
	}
	if two != nil && slices.Contains(two.controllers, "memory") && slices.Contains(two.controllers, "pids") {
		h, err := two.delegate()
		if err != nil {
			return nil, err
		}
		return []*hierarchy{h}, nil
	}
	for i := range mounts {
		m := &mounts[i]
		h := &hierarchy{parent: m.own, controllers: map[string]bool{}}
		for _, c := range m.controllers {
			if !m.v2 && slices.Contains(useful, c) && !have[c] {
				h.controllers[c], have[c] = true, true
			}
		}
		if len(h.controllers) > 0 {
			found = append(found, h)
		}
	}
	if !have["memory"] || !have["pids"] {
		return nil, errors.New("no control groups with the controllers memory and pids are mounted: mount cgroup2 on /sys/fs/cgroup")
	}
	if two != nil && writable(two.own) {
		found = append(found, &hierarchy{parent: two.own, v2: true}) // to end groups together
	}
	for _, h := range found {
		if !writable(h.parent) {
			return nil, fmt.Errorf("may not make control groups in %s: start the node as root or have the groups delegated to its user", h.parent)
		}
	}
	return found, nil
}

// writable reports whether this process can create groups in a folder, by creating one.
func writable(dir string) bool {
	probe := filepath.Join(dir, "outboard-probe-"+strconv.Itoa(os.Getpid()))
	return os.Mkdir(probe, 0o755) == nil && os.Remove(probe) == nil
}

// nodeGroup is the name of the group to which a node moves itself if its own group was delegated to
// it: a group of version 2 that has processes can't delegate controllers.
const nodeGroup = "outboard-node"

// delegate returns the folder of version 2 in which groups can be created and bounded.
func (m *mount) delegate() (*hierarchy, error) {
	h := &hierarchy{v2: true, controllers: map[string]bool{}}
	for _, c := range useful {
		if slices.Contains(m.controllers, c) {
			h.controllers[c] = true
		}
	}
	for _, try := range []func(*hierarchy) error{m.useOwn, m.useRoot} {
		if try(h) == nil && writable(h.parent) {
			return h, nil
		}
	}
	return nil, fmt.Errorf("the control group %s was not delegated to this node: start it by a unit with Delegate=yes, "+
		"or by `systemd-run --user --scope -p Delegate=yes outboard up`", m.own)
}

// useOwn creates groups in this process's own group, if that has no processes of others.
func (m *mount) useOwn(h *hierarchy) error {
	if filepath.Base(m.own) == nodeGroup {
		h.parent, h.node = filepath.Dir(m.own), m.own // an earlier program of this process has moved there
		return h.delegateControllers(h.parent)
	}
	h.parent = m.own
	for _, pid := range processes(m.own) {
		if !descends(pid) {
			return errors.New("others share the group")
		}
	}
	leaf := filepath.Join(m.own, nodeGroup)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	for _, pid := range processes(m.own) {
		// An error means that the process has just ended.
		_ = write(filepath.Join(leaf, procsFile), strconv.Itoa(pid))
	}
	h.node = leaf
	return h.delegateControllers(h.parent)
}

// useRoot creates groups in the root of the hierarchy, which only root may.
func (m *mount) useRoot(h *hierarchy) error {
	h.parent, h.node = m.point, ""
	return h.delegateControllers(h.parent)
}

// descends reports whether a process is this one or descends from it.
func descends(pid int) bool {
	for range 100 {
		if pid == os.Getpid() {
			return true
		}
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			return errors.Is(err, os.ErrNotExist) // the process has ended
		}
		_, rest, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')'):]), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 {
			return false
		}
		if pid, err = strconv.Atoi(fields[1]); err != nil || pid <= 1 {
			return false
		}
	}
	return false
}

// parse parses /proc/self/mountinfo and /proc/self/cgroup (proc(5), cgroups(7)).
func parse(mountinfo, own string) []mount {
	paths := map[string]string{} // by controller; "" is version 2
	for line := range strings.Lines(own) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) == 3 {
			for controller := range strings.SplitSeq(parts[1], ",") {
				paths[controller] = parts[2]
			}
		}
	}
	var mounts []mount
	for line := range strings.Lines(mountinfo) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, system := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 6 || len(system) < 3 {
			continue
		}
		m := mount{point: unescape.Replace(fields[4]), v2: system[0] == "cgroup2"}
		key := ""
		switch {
		case m.v2:
		case system[0] == "cgroup":
			m.controllers = strings.Split(system[2], ",")
			i := slices.IndexFunc(m.controllers, func(c string) bool { return slices.Contains(useful, c) })
			if i < 0 {
				continue
			}
			key = m.controllers[i]
		default:
			continue
		}
		path, ok := paths[key]
		if !ok {
			continue
		}
		m.own = below(m.point, unescape.Replace(fields[3]), path)
		mounts = append(mounts, m)
	}
	return mounts
}

// unescape decodes the escapes of mountinfo.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// below returns the path of a group under a mount that shows the hierarchy from root on. A group
// outside of that belongs to another namespace: the mount point is used instead.
func below(point, root, path string) string {
	rest, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
	if !ok || strings.HasPrefix(path, "/..") {
		return point
	}
	return filepath.Join(point, rest)
}
