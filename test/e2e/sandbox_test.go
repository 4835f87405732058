package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/need"
)

// users are the users that a node runs as: root, and an ordinary user, for whose processes other
// mechanisms of isolation work.
var users = []string{"root", "nobody"}

// strongest starts a node that refuses to lend devices without any mechanism of isolation that
// its user can have, and returns how programs use its device.
func strongest(t *testing.T, user string) suite.Launcher {
	t.Helper()
	need.Root(t) // to be others as well
	opts := rig.Options{Nodes: []rig.Spec{{Name: "harbour", Args: []string{"--sandbox", "require=all"}}}}
	groups := cgroup.Open("e2eprobe")
	if user == "root" && groups.Err() == nil {
		opts.Nodes[0].Args[1] = "require=all,cgroup"
	}
	if err := groups.Close(); err != nil {
		t.Error(err)
	}
	r := ownAs(t, opts, user)
	node := r.Node("harbour")
	list, err := node.Output(t.Context(), "devices", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range []string{"identity", "mounts", "network", "landlock", "seccomp"} {
		if !strings.Contains(list, mechanism) {
			t.Errorf("the device's isolation lacks %s: %s", mechanism, list)
		}
	}
	return through(r, "harbour")
}

// ownAs starts a pool whose processes belong to a user.
func ownAs(t *testing.T, opts rig.Options, user string) *rig.Rig {
	t.Helper()
	if user == "root" {
		return own(t, opts)
	}
	need.Program(t, "setpriv")
	program := binary(t)
	dir, err := os.MkdirTemp("", "outboard-e2e-")
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(dir, "outboard")
	script := fmt.Sprintf("#!/bin/sh\nexec setpriv --reuid %s --regid nogroup --clear-groups -- %s \"$@\"\n", user, program)
	for _, err := range []error{os.WriteFile(wrapper, []byte(script), 0o755), os.Chmod(dir, 0o777), os.Chmod(filepath.Dir(program), 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	opts.Binary, opts.Dir, opts.Log, opts.Env = wrapper, dir, logFile(t), []string{"HOME=" + dir}
	r, err := rig.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// sameIsolated runs a program locally and in the strongest sandbox, as root and as another
// user.
func sameIsolated(t *testing.T, programs ...suite.Program) {
	for _, user := range users {
		t.Run(user, func(t *testing.T) {
			way := strongest(t, user)
			for _, p := range programs {
				home := t.TempDir()
				for dir := home; strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
					if err := os.Chmod(dir, 0o777); err != nil {
						t.Fatal(err)
					}
				}
				local := p.Run(t.Context(), suite.Local, t.TempDir())
				if err := p.Compare(local, p.Run(t.Context(), way, home)); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			}
		})
	}
}

// Real programs work where every mechanism of isolation is required; `make conformance` runs
// more of them.
func TestStrongestSandbox(t *testing.T) {
	beside(t)
	need.Program(t, "ffmpeg")
	need.Program(t, "clblast_test_xaxpy")
	sameIsolated(t, suite.FFmpeg("avgblur_opencl=sizeX=3", 5), suite.CLBlast("xdot"))
}
