package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/outboard-run/outboard/internal/function"
)

const module = "github.com/outboard-run/outboard/"

// The packages of the functions that are measured.
const (
	smallGuest = module + "bench/function/testdata/small" // the smallest of Go, with data on its heap
	gateGuest  = module + "bench/function/testdata/gate"
	helloGuest = module + "bench/function/testdata/hello"
	greetGuest = module + "bench/function/testdata/greet"
	workGuest  = module + "internal/function/testdata/handler"
	passGuest  = module + "internal/function/testdata/pass"
)

// allGuests are the guests of all sections.
func allGuests() []string {
	pkgs := []string{smallGuest, gateGuest, helloGuest, greetGuest, workGuest, passGuest, module + "examples/enrollment/functions/enroll"}
	for _, step := range []string{"decode", "resize", "blur", "encode"} {
		pkgs = append(pkgs, module+"examples/thumbnails/functions/"+step)
	}
	return pkgs
}

// guests builds each guest once.
type guests struct {
	dir string

	mu    sync.Mutex
	built map[string][]byte
}

// build builds guests concurrently: a linker uses one core.
func (g *guests) build(ctx context.Context, pkgs []string) error {
	return each(len(pkgs), runtime.NumCPU(), func(i int) error {
		_, err := g.bytes(ctx, pkgs[i])
		return err
	})
}

// file writes a guest's module to a file and returns the file's path.
func (g *guests) file(ctx context.Context, pkg string) (string, error) {
	b, err := g.bytes(ctx, pkg)
	if err != nil {
		return "", err
	}
	file := filepath.Join(g.dir, filepath.Base(pkg)+".wasm")
	return file, os.WriteFile(file, b, 0o600)
}

// bytes returns a guest's module, and builds it if necessary.
func (g *guests) bytes(ctx context.Context, pkg string) ([]byte, error) {
	if b := g.get(pkg); b != nil {
		return b, nil
	}
	dir, err := os.MkdirTemp(g.dir, "build")
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "built.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, pkg)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	b, err := os.ReadFile(file)
	if err == nil {
		g.store(pkg, b)
	}
	return b, err
}

func (g *guests) get(pkg string) []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.built[pkg]
}

func (g *guests) store(pkg string, b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.built == nil {
		g.built = map[string][]byte{}
	}
	g.built[pkg] = b
}

// cache returns the folder of compiled code, which all sections share.
func (g *guests) cache() string { return filepath.Join(g.dir, "compiled") }

// withRuntime runs measure with a runtime for functions.
func (b *bench) withRuntime(ctx context.Context, measure func(*function.Runtime) error) error {
	r, err := function.Open(ctx, function.Options{CacheDir: b.guests.cache()})
	if err != nil {
		return err
	}
	err = measure(r)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return err
}

// deploy deploys a function of a guest.
func (b *bench) deploy(ctx context.Context, r *function.Runtime, pkg string, s function.Settings) (*function.Function, error) {
	code, err := b.guests.bytes(ctx, pkg)
	if err != nil {
		return nil, err
	}
	return r.Deploy(ctx, code, s)
}
