// Package modules lists the Go modules that are linked into the program, with their licences.
package modules

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A Module is a module whose code is linked into the program.
type Module struct {
	Path    string
	Version string
	// Licence is the SPDX identifier of the module's licence.
	Licence string
	// Texts are the module's licence and notice files.
	Texts []Text
}

// A Text is a licence or notice file of a module.
type Text struct{ Name, Content string }

// Standard is the path under which Linked lists Go's standard library.
const Standard = "go"

// Linked returns the modules that the package at path links for linux on each architecture, with
// Go's standard library first. The modules must be in the module cache.
func Linked(ctx context.Context, path string, architectures ...string) ([]Module, error) {
	found := map[string]listed{}
	for _, arch := range architectures {
		if err := list(ctx, path, arch, found); err != nil {
			return nil, err
		}
	}
	all, err := standard(ctx)
	if err != nil {
		return nil, err
	}
	modules := []Module{all}
	for _, l := range found {
		m, err := read(Module{Path: l.Path, Version: l.Version}, l.Dir)
		if err != nil {
			return nil, err
		}
		modules = append(modules, m)
	}
	slices.SortFunc(modules[1:], func(a, b Module) int { return strings.Compare(a.Path, b.Path) })
	return modules, nil
}

// listed is a module as `go list` prints it.
type listed struct {
	Path, Version, Dir string
	Main               bool
	Replace            *listed
}

func list(ctx context.Context, path, arch string, found map[string]listed) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Module", path)
	cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("list the packages of %s: %w", path, err)
	}
	decoder := json.NewDecoder(bytes.NewReader(out))
	for {
		var pkg struct{ Module *listed }
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("list the packages of %s: %w", path, err)
		}
		m := pkg.Module
		if m == nil || m.Main {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		found[m.Path] = *m
	}
}

// standard returns Go's standard library and runtime as a module.
func standard(ctx context.Context) (Module, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return Module{}, fmt.Errorf("go env: %w", err)
	}
	root, version, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return read(Module{Path: Standard, Version: strings.TrimPrefix(version, "go")}, root)
}

// textName matches the names of licence and notice files.
var textName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([.-].*)?$`)

// read adds the texts in a module's folder, and the licence that they state.
func read(m Module, dir string) (Module, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return m, fmt.Errorf("module %s: %w", m.Path, err)
	}
	for _, e := range entries {
		if !textName.MatchString(e.Name()) || e.IsDir() || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return m, fmt.Errorf("module %s: %w", m.Path, err)
		}
		text := strings.ReplaceAll(strings.TrimSpace(string(content)), "\r\n", "\n")
		m.Texts = append(m.Texts, Text{Name: e.Name(), Content: text})
		if m.Licence == "" {
			m.Licence = identify(text)
		}
	}
	if m.Licence == "" {
		return m, fmt.Errorf("module %s: no file in %s states a known licence; add it to identify", m.Path, dir)
	}
	return m, nil
}

// marks are phrases in the texts of licences, the most specific licence first.
var marks = []struct {
	id      string
	phrases []string
}{
	{"Apache-2.0", []string{"Apache License", "Version 2.0"}},
	{"MPL-2.0", []string{"Mozilla Public License", "2.0"}},
	{"BSD-3-Clause", []string{"Redistribution and use in source and binary forms", "used to endorse or promote"}},
	{"BSD-2-Clause", []string{"Redistribution and use in source and binary forms"}},
	{"MIT", []string{"Permission is hereby granted, free of charge"}},
	{"ISC", []string{"Permission to use, copy, modify, and"}},
	{"CC0-1.0", []string{"CC0 1.0 Universal"}},
}

// identify returns the SPDX expression of the licences that a text states, "" if it states none
// that is known.
func identify(text string) string {
	flat := strings.Join(strings.Fields(text), " ")
	var ids []string
	for _, mark := range marks {
		missing := slices.ContainsFunc(mark.phrases, func(p string) bool { return !strings.Contains(flat, p) })
		covered := mark.id == "BSD-2-Clause" && slices.Contains(ids, "BSD-3-Clause") // whose text has all of it
		if !missing && !covered {
			ids = append(ids, mark.id)
		}
	}
	return strings.Join(ids, " AND ")
}
