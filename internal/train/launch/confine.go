package launch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// The paths of its machine that a confined rank may read, and the devices that it may use.
var (
	systemPaths   = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/opt", "/proc", "/sys", "/run/nvidia-persistenced"}
	systemDevices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"}
)

// Args returns the arguments with which the helper process confines itself and becomes program.
func (c *Confinement) Args(program []string) []string {
	args := []string{"--dir", c.Dir, "--files", c.Files}
	for _, path := range c.Readable {
		args = append(args, "--readable", path)
	}
	if c.OwnUser {
		args = append(args, "--own-user")
	}
	return append(append(args, "--"), program...)
}

// Confinement describes the isolation of a rank's process.
type Confinement struct {
	// Dir is the folder that the process may write to, Files the folder in it at which relative
	// paths begin. Readable are paths that it may read beside the system's.
	Dir      string
	Files    string
	Readable []string
	// OwnUser means that the process runs under its own uid, which can't access the node's files.
	OwnUser bool
}

// environPrefix begins the name of each of a rank's variables in the environment of the helper
// process that confines itself. The job chooses the variables: with LD_PRELOAD, for example, the
// loader of the helper process would execute code of the job before the process is confined.
const environPrefix = "OUTBOARD_RANK_ENVIRON_"

// HelperEnviron returns the environment of the helper process that confines itself and becomes a
// rank with the given environment.
func HelperEnviron(rank []string) []string {
	environ := make([]string, len(rank))
	for i, variable := range rank {
		environ[i] = environPrefix + variable
	}
	return environ
}

// rankEnviron returns the rank's environment for that of the helper process.
func rankEnviron(helper []string) []string {
	environ := []string{}
	for _, variable := range helper {
		if own, ok := strings.CutPrefix(variable, environPrefix); ok {
			environ = append(environ, own)
		}
	}
	return environ
}

// Confine confines this process and executes a program in its place, with the environment that
// HelperEnviron was given. It returns only errors.
func Confine(c Confinement, args []string) error {
	if len(args) == 0 {
		return outboard.Errorf(outboard.Invalid, "start a rank", "no program")
	}
	runtime.LockOSThread()
	environ := rankEnviron(os.Environ())
	for _, variable := range environ {
		if path, ok := strings.CutPrefix(variable, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return fmt.Errorf("start a rank: %w", err)
			}
		}
	}
	path, err := LookPath(args[0], c.Files)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("start a rank: no new privileges: %w", err)
	}
	err = sandbox.RestrictThread(c.rules())
	if errors.Is(err, sandbox.ErrUnsupported) {
		if !c.OwnUser {
			return outboard.Errorf(outboard.Denied, "start a rank",
				"this machine can't confine it (%w): run the node as root, or trust the pool's jobs with `outboard up --jobs trusted`", err)
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("start a rank: %w", err)
	}
	return fmt.Errorf("start %s: %w", args[0], syscall.Exec(path, args, environ))
}

func (c *Confinement) rules() sandbox.Rules {
	r := sandbox.Rules{Write: []string{c.Dir, "/dev/shm"}, Read: append(append([]string(nil), systemPaths...), c.Readable...), Network: true}
	for _, pattern := range append(append([]string(nil), systemDevices...), sandbox.AcceleratorDevices...) {
		found, _ := filepath.Glob(pattern) // The patterns are well-formed.
		r.Devices = append(r.Devices, found...)
	}
	if info, err := os.Stat("/dev/shm"); err != nil || !info.IsDir() {
		r.Write = r.Write[:1]
	}
	return r
}

// LookPath finds a program in PATH, or relative to dir.
func LookPath(name, dir string) (string, error) {
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(dir, name)
	}
	path, err := exec.LookPath(name)
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return "", outboard.Errorf(outboard.NotFound, "start a rank", "this node has no program %q", name)
		}
		return "", outboard.Errorf(outboard.Invalid, "start a rank", "%w", err)
	}
	return path, nil
}
