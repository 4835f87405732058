package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/accel/opencl"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// The compile step fills a program's cache of compiled kernels after a session. It has the sandbox
// of a worker, but can't execute any file that it writes, so that no kernel runs where the cache
// can be changed. Each step is executed by a process of its own: a driver may end it, as PoCL
// does when it can't execute the compiled code.

// stepVariable makes this program execute the step on its standard input.
const stepVariable = "OUTBOARD_WORKER_STEP"

// compileNice is the nice value of the compile step: sessions have priority.
const compileNice = 15

// maxKnown bounds the recipes of a cache.
const maxKnown = 16 << 10

// Limits of a step. Processor time counts, since a step waits for processors behind everything
// else; the other limit ends a driver that waits for ever.
const (
	stepProcessorTime = time.Minute
	stepLimit         = 15 * time.Minute
)

// step is one run of the compiler: a program, with or without one launch of it.
type step struct {
	Config  control.Config        `json:"config"`
	Program *opencl.ProgramRecipe `json:"program"`
	Launch  *opencl.LaunchRecipe  `json:"launch,omitempty"`
	// Binaries requests the compilation of kernel number Kernel as the program's binaries contain
	// it.
	Binaries bool `json:"binaries,omitempty"`
	Kernel   int  `json:"kernel,omitempty"`

	keys []string // of its recipes
}

// compile executes recipes. A recipe that fails is not tried again.
func compile(ctx context.Context, cfg control.Config, recipes io.Reader) error {
	if cfg.CacheDir != cacheDir {
		return errors.New("compile: not without a root of its own")
	}
	all, err := opencl.ReadRecipes(recipes)
	if err != nil && len(all) == 0 {
		return err
	}
	known := knownRecipes(cfg.CacheDir)
	list, err := os.OpenFile(filepath.Join(cfg.CacheDir, control.RecipesFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer list.Close()
	for _, s := range plan(all, known) {
		if len(known) >= maxKnown {
			break
		}
		s.Config = cfg
		s.runAll(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for _, key := range s.keys {
			known[key] = true
			if _, err := fmt.Fprintln(list, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// plan returns the steps for the recipes whose results are not known. The step of a program's first
// launch is that of the program, too: it builds the program before it compiles the kernel, and the
// start of a driver costs as much as a small kernel.
func plan(all []opencl.Recipe, known map[string]bool) (steps []*step) {
	programs, building, planned := map[string]*opencl.ProgramRecipe{}, map[string]*step{}, map[string]bool{}
	for i := range all {
		r := &all[i]
		program := r.Key
		switch {
		case r.Program != nil:
			programs[r.Key] = r.Program
		case r.Launch != nil:
			program = r.Launch.Program
		default:
			program = r.Binaries
		}
		if programs[program] == nil || known[r.Key] || planned[r.Key] {
			continue
		}
		planned[r.Key] = true
		if first := building[program]; r.Launch != nil && first != nil {
			first.Launch, first.keys = r.Launch, append(first.keys, r.Key)
			delete(building, program)
			continue
		}
		s := &step{Program: programs[program], Launch: r.Launch, Binaries: r.Binaries != "", keys: []string{r.Key}}
		if r.Program != nil {
			building[program] = s
		}
		steps = append(steps, s)
	}
	return steps
}

// maxKernels bounds the kernels of one program that are compiled for its binaries.
const maxKernels = 256

// runAll executes a step: for binaries with one process per kernel.
func (s *step) runAll(ctx context.Context) {
	for s.Kernel = range maxKernels {
		if last := s.run(ctx); last || !s.Binaries || ctx.Err() != nil {
			return
		}
	}
}

// run executes a step in a process. For binaries, exit status 0 means that the program has no
// kernel of that number; another status says little, since the driver may have ended the process.
func (s *step) run(ctx context.Context) (last bool) {
	ctx, cancel := context.WithTimeout(ctx, stepLimit)
	defer cancel()
	text, err := json.Marshal(s)
	if err != nil {
		return true
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), stepVariable+"=1")
	if s.Binaries {
		cmd.Env = append(cmd.Env, opencl.GenericKernels)
	}
	cmd.Stdin = strings.NewReader(string(text))
	return cmd.Run() == nil
}

// runStep is the main function of the process of one step.
func runStep(in io.Reader) error {
	var s step
	if err := json.NewDecoder(in).Decode(&s); err != nil {
		return fmt.Errorf("compile: %w", err)
	}
	if err := limitProcessorTime(); err != nil {
		return err
	}
	if err := sandbox.RefuseWatches(s.Config.Sandbox.Calls); err != nil {
		return err
	}
	table, err := load(s.Config.API)
	if err != nil {
		return err
	}
	err = opencl.Compile(opencl.CompileOptions{
		Driver: table, Device: s.Config.Device, DeviceName: s.Config.DeviceName, IncludeDir: filepath.Join(s.Config.CacheDir, "include"),
		Binaries: s.Binaries, Kernel: s.Kernel,
	}, s.Program, s.Launch)
	if errors.Is(err, opencl.ErrNoKernel) {
		return nil
	}
	if err == nil && s.Binaries {
		return errors.New("compile: the driver executed what it compiled")
	}
	return err
}

// limitProcessorTime has the kernel end this process when it has used stepProcessorTime.
func limitProcessorTime() error {
	const seconds = uint64(stepProcessorTime / time.Second)
	return unix.Setrlimit(unix.RLIMIT_CPU, &unix.Rlimit{Cur: seconds, Max: seconds})
}

// knownRecipes returns the keys of the recipes whose results are in a cache.
func knownRecipes(dir string) map[string]bool {
	known := map[string]bool{}
	f, err := os.Open(filepath.Join(dir, control.RecipesFile))
	if err != nil {
		return known
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan() && len(known) < maxKnown; {
		known[lines.Text()] = true
	}
	return known
}
