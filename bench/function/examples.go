package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard/internal/app/manifest"
)

// root returns the module's folder.
func root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", strings.TrimSuffix(module, "/")).Output()
	if err != nil {
		return "", fmt.Errorf("find the module's folder: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// example returns the app of a folder in examples, whose functions lie in its folder functions
// under their names in the manifest.
func (b *bench) example(ctx context.Context, name string) (app, error) {
	dir, err := root(ctx)
	if err != nil {
		return app{}, err
	}
	dir = filepath.Join(dir, "examples", name)
	text, err := os.ReadFile(filepath.Join(dir, "app.yaml"))
	if err != nil {
		return app{}, err
	}
	m, err := manifest.Parse("app.yaml", text, manifest.Options{})
	if err != nil {
		return app{}, err
	}
	a := app{text: string(text), files: map[string][]byte{}}
	for function, f := range m.App.Functions {
		if a.files[f.Module], err = b.guests.bytes(ctx, module+"examples/"+name+"/functions/"+function); err != nil {
			return app{}, err
		}
	}
	for _, file := range m.App.Workflows {
		if a.files[file], err = os.ReadFile(filepath.Join(dir, file)); err != nil {
			return app{}, err
		}
	}
	return a, nil
}
