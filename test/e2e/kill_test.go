package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
)

// Sessions that are killed at any moment, whichever process it is, leave nothing
// behind. `make conformance` kills a thousand.
func TestSessionsKilledAtRandom(t *testing.T) {
	beside(t)
	killAtRandom(t, 44)
}

// killer starts sessions and kills them.
type killer struct {
	*rig.Rig
	t       *testing.T
	program string
	// long is how long a session takes to begin here.
	long time.Duration
}

func killAtRandom(t *testing.T, count int) {
	tmp, err := os.MkdirTemp("", "outboard-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	k := &killer{t: t, Rig: own(t, rig.Options{Nodes: pair(), Env: []string{"TMPDIR=" + tmp, "XDG_RUNTIME_DIR=" + tmp}}), program: compiled(t, "hold")}
	for _, name := range []string{"harbour", "dinghy"} {
		fillCacheOfHold(t, k.Rig, name)
	}
	waitForCompileSteps(t, k.Node("harbour"))
	begin := time.Now()
	first := startBlocked(t, through(k.Rig, "dinghy", "--memory", "16MiB"), "stream")
	k.long = time.Since(begin)
	_ = syscall.Kill(-first.cmd.Process.Pid, syscall.SIGKILL)
	_ = first.cmd.Wait() // killed
	const warm = 24
	k.some(warm, 1)
	eventually(t, "the first sessions are gone", func() bool {
		return len(list(t, k.Node("harbour"), "sessions")) == 0 && len(list(t, k.Node("harbour"), "leases")) == 0
	})
	before := map[string]footprint{}
	for _, name := range []string{"harbour", "dinghy"} {
		before[name] = measure(t, k.Node(name))
	}
	k.some(count-warm, 2)
	for name, f := range before {
		waitForFootprint(t, k.Node(name), f)
	}
	// A run that was killed leaves its socket to the next one to remove.
	if _, err := k.Node("dinghy").Output(t.Context(), "run", "--", "true"); err != nil {
		t.Error(err)
	}
	eventually(t, "the temporary folder is empty", func() bool { return len(files(tmp)) == 0 })
}

// files are all files below a folder, and not the folders.
func files(dir string) (all []string) {
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			all = append(all, path)
		}
		return nil
	})
	return all
}

// some starts count sessions, four at a time, and kills them.
func (k *killer) some(count int, seed uint64) {
	const parallel = 4
	var killing sync.WaitGroup
	for i := range parallel {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		killing.Go(func() {
			for j := i; j < count && !k.t.Failed(); j += parallel {
				if err := k.runAndKill(random); err != nil {
					k.t.Errorf("session %d of %d (seed %d): %v", j, count, seed, err)
				}
			}
		})
	}
	killing.Wait()
}

// runAndKill runs a program on either node and kills one of its processes.
func (k *killer) runAndKill(random *rand.Rand) error {
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	node, mode, victim := pick("harbour", "dinghy"), pick("finish", "read", "stream"), pick("program", "program", "run", "run", "worker")
	delay := time.Duration(random.Int64N(int64(2 * k.long)))
	cmd := through(k.Rig, node, "--memory", "16MiB", "--timeout", "60s")(k.t.Context(), k.program, mode)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer // the program writes there, too: Wait ends when both have ended
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.WaitDelay = patience
	if err := cmd.Start(); err != nil {
		return err
	}
	killed, ended := make(chan struct{}), make(chan struct{})
	time.AfterFunc(delay, func() {
		defer close(killed)
		k.kill(victim, cmd.Process.Pid, random, ended)
	})
	where := "nowhere"
	limit := time.AfterFunc(patience, func() {
		where = waits(append(append(descendants(cmd.Process.Pid), cmd.Process.Pid), descendants(k.Node("harbour").PID())...))
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	})
	err := cmd.Wait()
	close(ended)
	<-killed
	defer func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }()
	switch {
	case !limit.Stop():
		return fmt.Errorf("%s over %s, %s killed after %v: it hung: %s\n%s", mode, node, victim, delay, where, &out)
	case errors.Is(err, exec.ErrWaitDelay):
		return fmt.Errorf("%s over %s, %s killed after %v: the program outlived it\n%s", mode, node, victim, delay, &out)
	}
	return nil
}

// waits returns the state of processes in the kernel.
func waits(pids []int) string {
	var all strings.Builder
	for _, pid := range pids {
		for _, name := range []string{"comm", "wchan", "stack"} {
			text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
			fmt.Fprintf(&all, "%d %s: %s\n", pid, name, text)
		}
	}
	return all.String()
}

// kill ends one process at once. There may be none of its kind yet, or a worker
// was another session's: then it is `outboard run` that goes.
func (k *killer) kill(victim string, run int, random *rand.Rand, ended <-chan struct{}) {
	var of []int
	switch victim {
	case "program":
		of = descendants(run)
	case "worker":
		of = descendants(k.Node("harbour").PID())
	}
	if len(of) > 0 && syscall.Kill(of[random.IntN(len(of))], syscall.SIGKILL) == nil {
		select {
		case <-ended:
			return
		case <-time.After(k.long):
		}
	}
	select {
	case <-ended:
	default:
		_ = syscall.Kill(run, syscall.SIGKILL)
	}
}
