package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/outboard-run/outboard/internal/function"
)

const module = "github.com/outboard-run/outboard/"

// The functions that are measured.
const (
	smallGuest = module + "bench/function/testdata/small" // the least that Go makes, with something on its heap
	gateGuest  = module + "bench/function/testdata/gate"
	helloGuest = module + "bench/function/testdata/hello"
	workGuest  = module + "internal/function/testdata/handler"
	passGuest  = module + "internal/function/testdata/pass"
)

// guests builds each guest once.
type guests struct {
	dir   string
	built map[string][]byte
}

// file is a guest's module in a file.
func (g *guests) file(ctx context.Context, pkg string) (string, error) {
	b, err := g.bytes(ctx, pkg)
	if err != nil {
		return "", err
	}
	file := filepath.Join(g.dir, filepath.Base(pkg)+".wasm")
	return file, os.WriteFile(file, b, 0o600)
}

// bytes is a guest's module.
func (g *guests) bytes(ctx context.Context, pkg string) ([]byte, error) {
	if b := g.built[pkg]; b != nil {
		return b, nil
	}
	file := filepath.Join(g.dir, "built.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, pkg)
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", pkg, err, out)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if g.built == nil {
		g.built = map[string][]byte{}
	}
	g.built[pkg] = b
	return b, nil
}

// cache keeps compiled code, so that no section compiles what another one did.
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

// deploy makes a function of a guest.
func (b *bench) deploy(ctx context.Context, r *function.Runtime, pkg string, s function.Settings) (*function.Function, error) {
	code, err := b.guests.bytes(ctx, pkg)
	if err != nil {
		return nil, err
	}
	return r.Deploy(ctx, code, s)
}
