package outboardtest

import (
	"bytes"
	"context"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
)

// A nodeProcess is the process of a node.
type nodeProcess struct {
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has ended
	errors tail
}

// Kill ends the process of a node at once (SIGKILL), as a loss of power does, and returns when it
// has ended. Start starts the node again. The node must run in a separate process.
func (n *Node) Kill() {
	n.t.Helper()
	if !n.spec.Process {
		n.t.Fatalf("node %s has no process of its own: set Process in its Spec", n.Name)
	}
	n.stopProcess(syscall.SIGKILL)
}

// startProcess starts `outboard up` and waits until the node answers.
func (n *Node) startProcess() {
	n.t.Helper()
	p := &nodeProcess{cmd: n.Command(context.Background(), n.upArgs()...), exited: make(chan struct{})}
	p.cmd.Stderr = &p.errors
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go func() {
		defer close(p.exited)
		// The kernel sends the parent-death signal when the thread that started the process ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			_ = p.cmd.Wait() // a node that is killed ends with an error
		}
	}()
	if err := <-started; err != nil {
		n.t.Fatal(err)
	}
	n.process = p
	n.await(func() bool {
		select {
		case <-p.exited:
			n.t.Fatalf("node %s did not start:\n%s", n.Name, p.errors.String())
		default:
		}
		s, err := n.Client().Status(n.t.Context())
		if err != nil {
			return false
		}
		// A restart uses the same address, where the other nodes expect it.
		n.opts.Listen, n.opts.Join, n.opts.Token = s.Addr, "", ""
		return true
	})
}

// stopProcess ends the node's process, if it runs.
func (n *Node) stopProcess(signal syscall.Signal) {
	if n.process == nil {
		return
	}
	_ = syscall.Kill(-n.process.cmd.Process.Pid, signal) // it may have ended
	<-n.process.exited
	n.process = nil
}

// upArgs returns the arguments of the node's command.
func (n *Node) upArgs() []string {
	o := &n.opts
	args := []string{"up", "--name", string(o.Name), "--listen", o.Listen, "--routes", o.Routes, "--http", "none", "--grpc", "none"}
	for flag, value := range map[string]string{"--join": o.Join, "--token": o.Token, "--jobs": o.Jobs, "--models": o.Models, "--objects": n.objects} {
		if value != "" {
			args = append(args, flag, value)
		}
	}
	if n.spec.NoDevices {
		args = append(args, "--devices", "none")
	}
	return args
}

// A tail keeps the last bytes that a process has written.
type tail struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// maxTail bounds a tail in bytes.
const maxTail = 64 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.text.Len() > maxTail {
		t.text.Next(t.text.Len() / 2)
	}
	return t.text.Write(b)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(t.text.String())
}
