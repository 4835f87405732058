package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/confine"
)

// Environment of the second start.
const (
	configVariable = "OUTBOARD_WORKER_CONFIG"
	gapsVariable   = "OUTBOARD_WORKER_GAPS"
)

// maxFiles bounds a worker's open files.
const maxFiles = 4096

// inheritedConfig returns the configuration if the process is confined already.
func inheritedConfig() (cfg control.Config, confined bool, err error) {
	text, ok := os.LookupEnv(configVariable)
	if !ok {
		return cfg, false, nil
	}
	if err := os.Unsetenv(configVariable); err != nil {
		return cfg, true, err
	}
	err = json.Unmarshal([]byte(text), &cfg)
	return cfg, true, err
}

// missingIsolation lists, in words, the mechanisms that this machine lacks.
func missingIsolation() []string {
	return strings.FieldsFunc(os.Getenv(gapsVariable), func(r rune) bool { return r == '\n' })
}

// confineAndRestart gives up privileges and executes the program again. It only
// returns when it fails. Everything that it sets belongs to the calling thread
// and passes through execve, which leaves only that thread.
func confineAndRestart(cfg control.Config, inherit ...*os.File) error {
	runtime.LockOSThread()
	for _, f := range inherit {
		if _, err := unix.FcntlInt(f.Fd(), unix.F_SETFD, 0); err != nil {
			return fmt.Errorf("keep inherited file: %w", err)
		}
	}
	text, err := json.Marshal(cfg)
	if err != nil {
		return fmt.Errorf("worker's configuration: %w", err)
	}
	missing, err := restrict(cfg)
	if err != nil {
		return err
	}
	env := environment(cfg, string(text), missing)
	err = unix.Exec("/proc/self/exe", os.Args, env)
	// A file that is collected before is closed, and its number taken by the next that is opened.
	runtime.KeepAlive(inherit)
	return fmt.Errorf("restart worker: %w", err)
}

// environment is that of the node but for what drivers should find elsewhere.
func environment(cfg control.Config, config string, missing []string) []string {
	set := map[string]string{
		"POCL_CACHE_DIR": cfg.CacheDir, "TMPDIR": cfg.TmpDir, "HOME": cfg.TmpDir,
		"XDG_CACHE_HOME": cfg.CacheDir, "CUDA_CACHE_PATH": cfg.CacheDir,
		configVariable: config, gapsVariable: strings.Join(missing, "\n"),
	}
	var env []string
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if _, ours := set[name]; !ours && !strings.HasPrefix(name, "OUTBOARD_TOKEN") {
			env = append(env, v)
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}

// restrict returns what this kernel can't do for us.
func restrict(cfg control.Config) (missing []string, err error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("no new privileges: %w", err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return nil, fmt.Errorf("no core files: %w", err)
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("limit of files: %w", err)
	}
	files.Max = min(files.Max, maxFiles)
	files.Cur = min(files.Cur, files.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		return nil, fmt.Errorf("limit of files: %w", err)
	}
	switch err := restrictFiles(cfg); {
	case errors.Is(err, confine.ErrMissing):
		missing = append(missing, "this kernel has no Landlock: kernels of borrowers can read what the node's user can read")
	case err != nil:
		return nil, err
	}
	switch err := filterCalls(); {
	case noFilter(err):
		missing = append(missing, "this kernel cannot filter system calls: kernels of borrowers can reach the local sockets of the node's user")
	case err != nil:
		return nil, err
	}
	return missing, dropCapabilities()
}

// dropCapabilities makes root an ordinary user after the restart.
func dropCapabilities() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for c := range uintptr(64) {
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // no such capability, nor any after it
		}
		if err != nil && !errors.Is(err, unix.EPERM) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&head, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// readable is where drivers, their compilers and their libraries are. The home
// folders and the node's state, where its keys are, are not among them.
var readable = []string{"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/proc", "/sys", "/nix", "/run/opengl-driver"}

// restrictFiles leaves the worker's own folders and /dev to write to, and what
// drivers need to read; no TCP, no signals to others.
func restrictFiles(cfg control.Config) error {
	// Not os.Executable: the file may have been replaced since the node started.
	paths := append(append([]string{"/proc/self/exe"}, readable...), cfg.ReadPaths...)
	for _, name := range []string{"LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"} {
		paths = append(paths, filepath.SplitList(os.Getenv(name))...)
	}
	return confine.Thread(confine.Rules{Write: []string{cfg.CacheDir, cfg.TmpDir, "/dev"}, Read: paths})
}
