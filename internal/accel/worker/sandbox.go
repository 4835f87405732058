package worker

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// Environment variables of the second start.
const (
	configVariable    = "OUTBOARD_WORKER_CONFIG"
	isolationVariable = "OUTBOARD_WORKER_ISOLATION"
)

// cacheDir is the path of the cache of compiled kernels inside a root of the worker's own. The path
// is the same in every session: drivers cache programs by their options, which name folders below
// it.
const cacheDir = "/cache"

// defaultCacheSize bounds a session's additions to its cache if its node does not.
const defaultCacheSize = 64 << 20

// inheritedConfig returns the configuration from the environment if the process is isolated
// already.
func inheritedConfig() (cfg control.Config, isolation control.Isolation, isolated bool, err error) {
	text, ok := os.LookupEnv(configVariable)
	if !ok {
		return cfg, isolation, false, nil
	}
	if err := json.Unmarshal([]byte(os.Getenv(isolationVariable)), &isolation); err != nil {
		return cfg, isolation, true, err
	}
	for _, name := range []string{configVariable, isolationVariable} {
		if err := os.Unsetenv(name); err != nil {
			return cfg, isolation, true, err
		}
	}
	err = json.Unmarshal([]byte(text), &cfg)
	return cfg, isolation, true, err
}

// isolateAndRestart enters the sandbox and executes the program again. It returns only when it
// fails.
func isolateAndRestart(cfg control.Config, inherit ...*os.File) error {
	if cfg.Compile {
		runtime.LockOSThread() // Exec makes this thread's priority that of the process
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, compileNice)
	}
	inside, err := sandbox.Enter(sandboxConfig(&cfg))
	if err != nil {
		return fmt.Errorf("isolate the worker: %w", err)
	}
	if inside.OwnRoot() {
		cfg.CacheDir, cfg.TmpDir = cacheDir, sandbox.TmpDir
	} else if cfg.CacheDir, err = privateCache(&cfg); err != nil {
		return err
	}
	isolation := isolationOf(inside)
	if cfg.Cgroup {
		isolation.Mechanisms = append(isolation.Mechanisms, sandbox.Cgroup)
	}
	if missing := sandbox.Missing(cfg.Require, isolation.Mechanisms); len(missing) > 0 {
		return outboard.Errorf(outboard.Denied, "isolate the worker",
			"this machine lacks what --sandbox require= demands: %v (%s)", missing, strings.Join(isolation.Gaps, "; "))
	}
	environ, err := environment(cfg, isolation)
	if err != nil {
		return err
	}
	return inside.Exec(os.Args, environ, inherit...)
}

// sandboxConfig completes the node's sandbox configuration with settings that only this process
// knows.
func sandboxConfig(cfg *control.Config) sandbox.Config {
	c := cfg.Sandbox
	if cfg.Compile {
		// A driver can't execute here the code that it compiles.
		c.NoExec, c.Writable = true, []sandbox.Bind{{Source: cfg.CacheDir, Target: cacheDir, NoExec: true}}
	} else {
		c.Layers = []sandbox.Layer{{Source: cfg.CacheDir, Target: cacheDir, Size: int64(cmp.Or(cfg.CacheSize, defaultCacheSize))}}
	}
	c.Fallback = []string{cfg.TmpDir}
	c.Readable = append(c.Readable, cfg.ReadPaths...)
	for _, name := range []string{"LD_LIBRARY_PATH", "OCL_ICD_VENDORS", "OCL_ICD_FILENAMES"} {
		for _, path := range filepath.SplitList(os.Getenv(name)) {
			if filepath.IsAbs(path) {
				c.Readable = append(c.Readable, filepath.Clean(path))
			}
		}
	}
	return c
}

// privateCache creates an empty cache in the session's own folder, for a machine on which a session
// can't read its program's cache without being able to change it.
func privateCache(cfg *control.Config) (string, error) {
	dir := filepath.Join(cfg.TmpDir, "cache")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("the session's cache: %w", err)
	}
	return dir, nil
}

func isolationOf(inside *sandbox.Inside) control.Isolation {
	isolation := control.Isolation{Mechanisms: inside.Mechanisms, Layered: inside.OwnRoot() && inside.Layered}
	for _, gap := range inside.Gaps {
		isolation.Gaps = append(isolation.Gaps, fmt.Sprintf("%s: %v", gap.Mechanism, gap.Err))
	}
	return isolation
}

// environment returns the environment of the second start: the variables of drivers name the
// session's own folders.
func environment(cfg control.Config, isolation control.Isolation) ([]string, error) {
	config, err := json.Marshal(cfg)
	if err != nil {
		return nil, fmt.Errorf("worker's configuration: %w", err)
	}
	state, err := json.Marshal(isolation)
	if err != nil {
		return nil, fmt.Errorf("worker's isolation: %w", err)
	}
	set := map[string]string{
		"POCL_CACHE_DIR": cfg.CacheDir, "TMPDIR": cfg.TmpDir, "HOME": cfg.TmpDir,
		"XDG_CACHE_HOME": cfg.CacheDir, "CUDA_CACHE_PATH": cfg.CacheDir,
		configVariable: string(config), isolationVariable: string(state),
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
	return env, nil
}
