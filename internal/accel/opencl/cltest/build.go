package cltest

import (
	"context"
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/need"
)

//go:embed c/*.c c/*.h
var sources embed.FS

// Source files that are linked into the programs. openclParts call OpenCL and are linked only into
// programs that are linked with OpenCL.
var (
	plainParts  = []string{"child.c", "clt.c", "names.c"}
	openclParts = []string{"opencl.c", "work.c"}
	unlinked    = []string{"unload"}
)

// Suite is the set of built test programs.
type Suite struct {
	dir      string
	programs []string

	mu     sync.Mutex
	native map[string]func() *result // by driver and program
}

// Build compiles the programs into a folder of the test. Without a compiler,
// the OpenCL headers or a driver it skips the test, unless need.Variable names
// "gcc" or "opencl".
func Build(t testing.TB) *Suite {
	t.Helper()
	return BuildIn(t, t.TempDir())
}

// BuildIn is Build with a folder that may outlast the test, so that several tests share the
// programs and their output over the local driver.
func BuildIn(t testing.TB, dir string) *Suite {
	t.Helper()
	requireTools(t)
	suite := &Suite{dir: dir, native: map[string]func() *result{}}
	entries, err := sources.ReadDir("c")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		text, err := sources.ReadFile("c/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(suite.dir, entry.Name()), text, 0o600); err != nil {
			t.Fatal(err)
		}
		name, isC := strings.CutSuffix(entry.Name(), ".c")
		if isC && !slices.Contains(slices.Concat(plainParts, openclParts), entry.Name()) {
			suite.programs = append(suite.programs, name)
		}
	}
	suite.compileAll(t)
	return suite
}

// Programs lists the test programs, without the benchmark.
func (s *Suite) Programs() []string {
	return slices.DeleteFunc(slices.Clone(s.programs), func(name string) bool { return name == "bench" })
}

// Path returns the path of a built program. Path("bench") is the benchmark's.
func (s *Suite) Path(program string) string { return filepath.Join(s.dir, program) }

// compileAll compiles the shared parts once, and then the programs.
func (s *Suite) compileAll(t testing.TB) {
	t.Helper()
	s.compileParallel(t, slices.Concat(plainParts, openclParts), func(part string) []string { return []string{"-c", part} })
	s.compileParallel(t, s.programs, func(program string) []string {
		args := []string{"-o", program, program + ".c"}
		for _, part := range plainParts {
			args = append(args, objectOf(part))
		}
		if !slices.Contains(unlinked, program) {
			for _, part := range openclParts {
				args = append(args, objectOf(part))
			}
			args = append(args, "-lOpenCL")
		}
		return append(args, "-lpthread", "-ldl")
	})
}

func objectOf(part string) string { return strings.TrimSuffix(part, ".c") + ".o" }

// compileParallel runs the compiler for each name, as many at a time as there are processors.
func (s *Suite) compileParallel(t testing.TB, names []string, arguments func(name string) []string) {
	t.Helper()
	var (
		group sync.WaitGroup
		slots = make(chan struct{}, runtime.NumCPU())
	)
	for _, name := range names {
		group.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			if text, err := s.compile(arguments(name)); err != nil {
				t.Errorf("gcc %s: %v\n%s", name, err, text)
			}
		})
	}
	group.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

func (s *Suite) compile(args []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "gcc", append([]string{"-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-g"}, args...)...)
	cmd.Dir = s.dir
	return cmd.CombinedOutput()
}

func requireTools(t testing.TB) {
	t.Helper()
	need.Program(t, "gcc")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := exec.CommandContext(ctx, "gcc", "-E", "-x", "c", "-include", "CL/cl.h", os.DevNull).Run()
	need.Require(t, "opencl", err == nil, "install ocl-icd-opencl-dev")
	icds, _ := filepath.Glob("/etc/OpenCL/vendors/*.icd")
	need.Require(t, "opencl", len(icds) > 0 || os.Getenv("OCL_ICD_VENDORS") != "", "install pocl-opencl-icd")
}
