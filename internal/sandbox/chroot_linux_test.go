package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/need"
)

// chrootVariable names the root that the test's own process makes and runs this program in.
const chrootVariable = "SANDBOX_TEST_CHROOT"

// noMountsStatus is the exit status of a process that may not mount anything.
const noMountsStatus = 77

// A process that is started in a chroot gets a root of its own all the same, and leaves no
// mount outside of it.
func TestChroot(t *testing.T) {
	need.Root(t)
	for _, mounted := range []bool{false, true} {
		t.Run(fmt.Sprintf("mount point %v", mounted), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), chrootVariable+"="+t.TempDir(), fmt.Sprintf("MOUNTED=%v", mounted))
			cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS} // with private mounts
			out, err := cmd.CombinedOutput()
			exit, exited := errors.AsType[*exec.ExitError](err)
			missing := errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || exited && exit.ExitCode() == noMountsStatus
			need.Require(t, "mounts", !missing, fmt.Sprintf("run as root of the machine: %v %s", err, out))
			if err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// mounts returns the lines of the mounts of this mount namespace.
func mounts() []string {
	text, _ := os.ReadFile("/proc/self/mountinfo")
	return strings.SplitAfter(string(text), "\n")
}

// changed returns the lines in which two lists of mounts differ, without mounts that are gone along
// with their mount point: the kernel removes them everywhere when another process deletes that.
func changed(before, after []string) (lines []string) {
	for _, line := range after {
		if !slices.Contains(before, line) {
			lines = append(lines, "+ "+line)
		}
	}
	for _, line := range before {
		fields := strings.Fields(line)
		if slices.Contains(after, line) || len(fields) < 5 {
			continue
		}
		if _, err := os.Lstat(fields[4]); err == nil {
			lines = append(lines, "- "+line)
		}
	}
	return lines
}

// attackInChroot runs every attacker in a chroot of its own, and returns the exit status.
func attackInChroot(dir string) int {
	if err := makeChroot(dir, os.Getenv("MOUNTED") == "true"); err != nil {
		fmt.Println(err)
		return noMountsStatus
	}
	before := mounts()
	n := DetectNamespaces()
	c := Config{
		Namespaces: n.List(), Scratch: "/scratch", TmpSize: 8 << 20, ShmSize: 4 << 20, UID: 0x70000001, GID: 0x70000001,
		Writable: []Bind{{Source: "/store", Target: "/cache"}}, Files: 1024, FileSize: 4 << 20, Tasks: 256,
	}
	status := 0
	for name := range attackers {
		if strings.HasPrefix(name, "every") {
			continue // see TestAllowList
		}
		cmd, err := command("/sandbox.test", c, n, name)
		if err == nil {
			cmd.Dir, cmd.SysProcAttr.Chroot = "/", dir
			cmd.Env = append(cmd.Env, "WANT="+string(Mounts)+","+string(Identity))
			var out []byte
			if out, err = cmd.CombinedOutput(); err != nil {
				err = fmt.Errorf("%w\n%s", err, out)
			}
		}
		if err != nil {
			fmt.Println(name, err)
			status = 1
		}
	}
	if lines := changed(before, mounts()); len(lines) > 0 {
		fmt.Printf("mounts that changed:\n%s", strings.Join(lines, ""))
		status = 1
	}
	return status
}

// makeChroot makes a root of this machine's libraries in dir. Mounts are shared, as service
// managers have them.
func makeChroot(dir string, mounted bool) error {
	if mounted {
		if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	for _, path := range []string{"/usr", "/lib", "/lib64", "/bin", "/etc", "/dev", "/proc", "/sys"} {
		if target, err := os.Readlink(path); err == nil {
			if err := os.Symlink(target, filepath.Join(dir, path)); err != nil {
				return err
			}
			continue
		}
		if _, err := os.Stat(path); err != nil {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			return err
		}
		if err := unix.Mount(path, filepath.Join(dir, path), "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind %s: %w", path, err)
		}
	}
	for _, path := range []string{"scratch", "store"} {
		if err := os.Mkdir(filepath.Join(dir, path), 0o700); err != nil {
			return err
		}
	}
	program, err := os.ReadFile(os.Args[0])
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(filepath.Join(dir, "store"), 0x70000001, 0x70000001),
		os.WriteFile(filepath.Join(dir, "sandbox.test"), program, 0o755)); err != nil {
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// missingWanted returns the mechanisms that the variable WANT names and LIST lacks.
func missingWanted() (failed []error) {
	for name := range strings.SplitSeq(os.Getenv("WANT"), ",") {
		if name != "" && !inside(Mechanism(name)) {
			failed = append(failed, fmt.Errorf("%s is missing: %s", name, os.Getenv("LIST")))
		}
	}
	return failed
}
