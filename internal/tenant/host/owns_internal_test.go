package host

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/helper"
)

// brokenOut launches the process of a tenant that a guest has taken over: it becomes ready, and then
// ends only when it is let go. Another process stands for it, and goes on.
type brokenOut struct {
	t     *testing.T
	letGo chan struct{}
	ready chan struct{}
	child *exec.Cmd
}

func newBrokenOut(t *testing.T) *brokenOut {
	t.Helper()
	b := &brokenOut{t: t, letGo: make(chan struct{}), ready: make(chan struct{}, 1), child: exec.Command("sleep", "1000")}
	if err := b.child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = b.child.Process.Kill()
		_ = b.child.Wait()
	})
	return b
}

func (b *brokenOut) pid() int { return b.child.Process.Pid }

// numbered is a process with the number of the child.
type numbered struct {
	Launched
	b *brokenOut
}

func (n numbered) PID() int { return n.b.pid() }

func (b *brokenOut) launch(socket *os.File) (Launched, error) {
	started, err := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		node, err := connectReady(ctx, socket, b.pid())
		if err != nil {
			return err
		}
		defer node.Close()
		b.ready <- struct{}{}
		<-b.letGo // it does not end with its node's connection
		return nil
	})("", socket)
	return numbered{started, b}, err
}

// The process of a tenant without apps has half a minute to end. Until then the node does not take it
// for a program of its user.
func TestEndingProcessIsOwned(t *testing.T) {
	b := newBrokenOut(t)
	h, err := Open(t.Context(), Options{Dir: t.TempDir(), Launch: b.launch})
	if err != nil {
		t.Fatal(err)
	}
	h.SetTenants([]string{"shop"})
	if err := h.tenants["shop"].await(t.Context()); err != nil { // before, its end would be a kill
		t.Fatal(err)
	}
	if !h.Owns(b.pid()) {
		t.Error("the process of a tenant is not recognized")
	}
	h.tenants["shop"].sendMembers(t.Context()) // no request, which would keep the process
	h.SetTenants(nil)
	if len(h.Tenants()) != 0 || !h.Owns(b.pid()) {
		t.Error("the process of a tenant that has no apps any more is not recognized")
	}
	close(b.letGo)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if h.Owns(b.pid()) || len(h.ending) != 0 {
		t.Errorf("after its end: %d processes end", len(h.ending))
	}
}

// What a process has started is recognized until the node has killed it.
func TestRestOfAProcessIsOwned(t *testing.T) {
	groups := cgroup.Open("ownstest" + strconv.Itoa(os.Getpid()))
	if err := groups.Err(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 20 {
		b := newBrokenOut(t)
		fd, err := unix.PidfdOpen(b.pid(), 0)
		if err != nil {
			t.Fatal(err)
		}
		h, err := Open(t.Context(), Options{Dir: t.TempDir(), Launch: b.launch, Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		h.SetTenants([]string{"shop"})
		<-b.ready
		var once sync.Once
		for limit := time.Now().Add(time.Minute); ; {
			owned := h.Owns(b.pid())
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
			if n == 1 {
				break
			}
			if n == 0 && err == nil && !owned {
				t.Error("a process that lives is not recognized")
				break
			}
			once.Do(func() { h.SetTenants(nil); close(b.letGo) })
			if time.Now().After(limit) {
				t.Fatal("the process was not killed")
			}
		}
		_ = unix.Close(fd)
		if err := h.Close(); err != nil && !strings.Contains(err.Error(), "killed") {
			t.Fatal(err)
		}
	}
}
