package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// idleFile is the file that switches a group to the kernel's idle class (Linux 5.15, both
// versions).
const idleFile = "cpu.idle"

// Idle switches a group to the kernel's idle class and back: processes of a group in that class run
// while the group's siblings leave a processor unused, and yield it as soon as one of these has
// work. Nothing is stopped, and no thread is woken. A nil Idle does nothing.
type Idle struct {
	file, weightFile *os.File // weightFile is nil for the default weight
	weight           string
	on               bool
}

// errNoIdle is the error of groups without the idle class.
var errNoIdle = errors.New("control group: no idle class: it needs the cpu controller, and Linux 5.15")

// CanIdle reports whether the groups of the tree have an idle class.
func (t *Tree) CanIdle() bool {
	g := t.available()
	if g == nil {
		return false
	}
	for i, h := range g.hierarchies {
		if h.controllers["cpu"] {
			_, err := os.Stat(filepath.Join(g.dirs[i], idleFile))
			return err == nil
		}
	}
	return false
}

// OpenIdle opens the switch of a group. The caller closes it.
func (g *Group) OpenIdle() (*Idle, error) {
	if g == nil {
		return nil, errNoIdle
	}
	for i, h := range g.hierarchies {
		if h.controllers["cpu"] {
			return openIdle(h, g.dirs[i], g.weight)
		}
	}
	return nil, errNoIdle
}

func openIdle(h *hierarchy, dir string, weight int) (*Idle, error) {
	file, err := os.OpenFile(filepath.Join(dir, idleFile), os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	idle := &Idle{file: file}
	if weight == 0 {
		return idle, nil
	}
	s := h.weightSetting(weight)
	idle.weight = s.text
	if idle.weightFile, err = os.OpenFile(filepath.Join(dir, s.file), os.O_WRONLY, 0); err != nil {
		return nil, errors.Join(fmt.Errorf("control group: %w", err), file.Close())
	}
	return idle, nil
}

// Set puts the group into the idle class, or back among its siblings with its weight, which the
// kernel forgets meanwhile. It must not be called by several goroutines at a time.
func (i *Idle) Set(on bool) error {
	if i == nil || i.on == on {
		return nil
	}
	text := "0"
	if on {
		text = "1"
	}
	if _, err := i.file.WriteAt([]byte(text), 0); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	i.on = on
	if on || i.weightFile == nil {
		return nil
	}
	if _, err := i.weightFile.WriteAt([]byte(i.weight), 0); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// On reports whether the group is in the idle class.
func (i *Idle) On() bool { return i != nil && i.on }

// Close closes the switch and leaves the group as it is.
func (i *Idle) Close() error {
	if i == nil {
		return nil
	}
	err := i.file.Close()
	if i.weightFile != nil {
		err = errors.Join(err, i.weightFile.Close())
	}
	return err
}
