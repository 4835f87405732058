package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// Begin makes the processes that the calling thread starts with attr, until end is called, members
// of the group from their beginning. The goroutine must be locked to its thread, which is in the
// groups of version 1 meanwhile.
//
// Adding another process to a group waits until all processors have passed a quiescent state, for
// 5 to 20 ms, since the kernel excludes forks meanwhile (cgroup_threadgroup_rwsem). A thread that
// moves itself (Linux 5.16), or a process that is started in a group of version 2
// (CLONE_INTO_CGROUP), does not wait.
//
// With an error nothing has changed, and the caller may start the process and Add it.
func (g *Group) Begin(attr *syscall.SysProcAttr) (end func() error, err error) {
	b := &begun{}
	if g == nil {
		return b.end, nil
	}
	for i, h := range g.hierarchies {
		if h.v2 {
			err = b.openDir(g.dirs[i])
		} else {
			err = b.moveThread(h.own(), g.dirs[i])
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("control group: %w", err), b.end())
		}
	}
	if b.dir != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(b.dir.Fd())
	}
	return b.end, nil
}

// begun is what the end of Begin reverses.
type begun struct {
	parents []string // of the thread in groups of version 1
	dir     *os.File // of version 2; nil for none
}

func (b *begun) openDir(dir string) (err error) {
	b.dir, err = os.Open(dir)
	return err
}

// tasksFile lists the threads of a group of version 1; "0" is the thread that writes it.
const tasksFile = "tasks"

// moveThread moves the thread to a group, unless it could not return to parent.
func (b *begun) moveThread(parent, dir string) error {
	if err := unix.Access(filepath.Join(parent, tasksFile), unix.W_OK); err != nil {
		return err
	}
	if err := write(filepath.Join(dir, tasksFile), "0"); err != nil {
		return err
	}
	b.parents = append(b.parents, parent)
	return nil
}

// end moves the thread back.
func (b *begun) end() error {
	var errs []error
	for _, parent := range b.parents {
		errs = append(errs, write(filepath.Join(parent, tasksFile), "0"))
	}
	if b.dir != nil {
		errs = append(errs, b.dir.Close())
	}
	return errors.Join(errs...)
}
