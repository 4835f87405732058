package worker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/control"
)

// Environment of the second start.
const (
	configVariable = "OUTBOARD_WORKER_CONFIG"
	gapsVariable   = "OUTBOARD_WORKER_GAPS"
)

// maxFiles bounds a worker's open files.
const maxFiles = 4096

// inherited returns the configuration when the process is confined already.
func inherited() (cfg control.Config, confined bool, err error) {
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

// gaps are what could not be confined, in words.
func gaps() []string {
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
	missing, err := confine(cfg)
	if err != nil {
		return err
	}
	env := environment(cfg, string(text), missing)
	if err := unix.Exec("/proc/self/exe", os.Args, env); err != nil {
		return fmt.Errorf("restart worker: %w", err)
	}
	return nil
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

// confine returns what this kernel can't do for us.
func confine(cfg control.Config) (missing []string, err error) {
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
	case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP):
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

// Rights of Landlock, by the version of its ABI that brought them.
const (
	landlockReads   = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	landlockFirst   = 1<<13 - 1 // version 1
	landlockIoctl   = 1 << 15   // LANDLOCK_ACCESS_FS_IOCTL_DEV, version 5
	landlockNet     = 3         // bind and connect of TCP, version 4
	landlockScopes  = 3         // abstract unix sockets and signals, version 6
	landlockOfFiles = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | landlockIoctl
)

// readable is where drivers, their compilers and their libraries are. The home
// folders and the node's state, where its keys are, are not among them.
var readable = []string{"/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/etc", "/proc", "/sys", "/nix", "/run/opengl-driver"}

// restrictFiles leaves the worker's own folders and /dev to write to, and what
// drivers need to read; no TCP, no signals to others.
func restrictFiles(cfg control.Config) error {
	abi, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return errno
	}
	attr := unix.LandlockRulesetAttr{Handled_access_fs: landlockFirst}
	if abi >= 2 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		attr.Handled_access_fs |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 4 {
		attr.Handled_access_net = landlockNet
	}
	if abi >= 5 {
		attr.Handled_access_fs |= landlockIoctl
	}
	if abi >= 6 {
		attr.Scoped = landlockScopes
	}
	set, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	defer unix.Close(int(set))
	if err := allow(int(set), attr.Handled_access_fs, cfg); err != nil {
		return err
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); errno != 0 {
		return fmt.Errorf("landlock: %w", errno)
	}
	return nil
}

func allow(set int, all uint64, cfg control.Config) error {
	for _, path := range []string{cfg.CacheDir, cfg.TmpDir, "/dev"} {
		if err := allowPath(set, path, all, false); err != nil {
			return err
		}
	}
	// Not os.Executable: the file may have been replaced since the node started.
	paths := append(append([]string{"/proc/self/exe"}, readable...), cfg.ReadPaths...)
	for _, name := range []string{"LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"} {
		paths = append(paths, filepath.SplitList(os.Getenv(name))...)
	}
	for _, path := range paths {
		if err := allowPath(set, path, all&landlockReads, true); err != nil {
			return err
		}
	}
	return nil
}

func allowPath(set int, path string, rights uint64, mayMiss bool) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		if mayMiss || path == "" {
			return nil
		}
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("landlock: %s: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= landlockOfFiles
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("landlock: %s: %w", path, errno)
	}
	return nil
}
