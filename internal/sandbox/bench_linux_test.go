package sandbox

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// BenchmarkStart compares the start of a process that executes its program twice with and
// without a sandbox.
func BenchmarkStart(b *testing.B) {
	for name, n := range map[string]Namespaces{"plain": {}, "sandbox": DetectNamespaces()} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			for b.Loop() {
				start(b, dir, n, name == "sandbox")
			}
		})
	}
}

func start(b *testing.B, dir string, n Namespaces, isolate bool) {
	if !isolate {
		for range 2 {
			cmd := exec.Command(os.Args[0])
			cmd.Env = []string{insideVariable + "=nothing", "CONFIG={}"}
			if err := cmd.Run(); err != nil {
				b.Fatal(err)
			}
		}
		return
	}
	c := Config{Namespaces: n.List(), Scratch: filepath.Join(dir, "scratch"), TmpSize: 1 << 20, ShmSize: 1 << 20, Writable: []Bind{{Source: dir, Target: "/cache"}}}
	if err := os.MkdirAll(c.Scratch, 0o700); err != nil {
		b.Fatal(err)
	}
	if os.Geteuid() == 0 && !n.User() {
		c.UID, c.GID = 0x70000001, 0x70000001
	}
	text, err := json.Marshal(c)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{enterVariable + "=" + string(text), "SANDBOX_TEST_ATTACK=nothing"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	n.Apply(cmd.SysProcAttr)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
}
