package cgroup

import (
	"errors"
	"io/fs"
	"os/exec"
	"syscall"
)

// Start starts a command as a member of the group, which may be nil, from its beginning where the
// kernel can. If it returns an error no process runs. The goroutine must be locked to its thread, and
// stay so if there is an error: the thread may still be in the group.
func (g *Group) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	attr := *cmd.SysProcAttr
	end, err := g.Begin(cmd.SysProcAttr)
	if errors.Is(err, fs.ErrNotExist) {
		return err // the group is gone
	}
	if err != nil { // a kernel that can't
		cmd.SysProcAttr = &attr
		if err := cmd.Start(); err != nil {
			return err
		}
		err = g.Add(cmd.Process.Pid)
	} else {
		err = errors.Join(cmd.Start(), end())
	}
	if err != nil && cmd.Process != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
	return err
}
