package ctest_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

var sanitizers = []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}

// An object is a file of C, compiled once for all tests of this package.
type object struct {
	once sync.Once
	path string
	err  error
}

// compiler compiles files of C with the sanitizers.
type compiler struct {
	mu      sync.Mutex
	dir     string // "" until the first object
	objects map[string]*object
	slots   chan struct{}
}

var objects = compiler{objects: map[string]*object{}, slots: make(chan struct{}, runtime.NumCPU())}

// object returns the entry of a source file, and the path of its object file.
func (c *compiler) object(source string) (o *object, path string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "libopencl"); err != nil {
			return nil, "", err
		}
	}
	if c.objects[source] == nil {
		c.objects[source] = &object{}
	}
	return c.objects[source], filepath.Join(c.dir, strings.ReplaceAll(strings.ReplaceAll(source, "../", ""), "/", "-")+".o"), nil
}

// compile returns the path of the object file of a source file.
func (c *compiler) compile(source string, flags ...string) (string, error) {
	o, path, err := c.object(source)
	if err != nil {
		return "", err
	}
	o.once.Do(func() {
		c.slots <- struct{}{}
		defer func() { <-c.slots }()
		args := slices.Concat([]string{"-std=c11", "-g1", "-O0", "-Wall", "-Wextra", "-Werror", "-o", path, "-c", source}, sanitizers, includeFlags(), flags)
		out, err := exec.Command("gcc", args...).CombinedOutput()
		if err != nil {
			o.err = fmt.Errorf("gcc %s: %w\n%s", source, err, out)
		}
		o.path = path
	})
	return o.path, o.err
}

// compileAll compiles files side by side, and returns their object files in the same order.
func (c *compiler) compileAll(t testing.TB, sources []string, flags ...string) []string {
	t.Helper()
	need.Program(t, "gcc")
	var group sync.WaitGroup
	paths, errs := make([]string, len(sources)), make([]error, len(sources))
	for i, source := range sources {
		group.Go(func() { paths[i], errs[i] = c.compile(source, flags...) })
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// link compiles the files and returns the path of the program that they make.
func (c *compiler) link(t testing.TB, sources []string, flags ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	args := slices.Concat(c.compileAll(t, sources, flags...), sanitizers, []string{"-o", program, "-lpthread"})
	if out, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	return program
}

func TestMain(m *testing.M) {
	status := m.Run()
	if objects.dir != "" {
		_ = os.RemoveAll(objects.dir)
	}
	os.Exit(status)
}

// libraryFiles returns the C files of the library.
func libraryFiles(t testing.TB) []string {
	t.Helper()
	var paths []string
	for _, f := range sourceFiles(t) {
		if filepath.Ext(f.path) == ".c" {
			paths = append(paths, f.path)
		}
	}
	return paths
}
