// Package templates creates the folder of a new function, for `outboard new`.
//
// The folder has all that its function needs beside the language's own tools: the sources of
// guest/go, the C header, the AssemblyScript library. So it builds without a network (but for
// AssemblyScript's compiler, which npm fetches), with the libraries of the outboard that
// created it, and still builds after an update.
package templates

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/guest"
)

//go:embed all:files
var files embed.FS

// ending is the suffix of the template files, so that the go command ignores those in Go.
const ending = ".tmpl"

// A source is a file or a folder of guest.Sources and its destination.
type source struct{ from, to string }

// sources are the files of each language. The packages for Go keep their import paths: the
// function's go.mod replaces the module by the folder beside it. So the code is as in the documentation
// and the examples, and a published version can be used later by deleting the replacement. The tests of
// the packages are left out, since they need more than is copied.
func sources(language string) []source {
	return map[string][]source{
		"go": {
			{"go", "outboard/guest/go"},
			{"go/web", "outboard/guest/go/web"},
			{"go/nn", "outboard/guest/go/nn"},
			{"go/text", "outboard/guest/go/text"},
			{"go/guesttest", "outboard/guest/go/guesttest"},
		},
		"c":  {{"c", ""}},
		"as": {{"as", "assembly"}},
	}[language]
}

// Languages lists the languages that have templates.
func Languages() []string { return []string{"as", "c", "go"} }

// validName returns the pattern of names, compiled at the first call: every command links this package.
var validName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`) })

// Write writes a new function of that name in a language ("go", "c" or "as") into a folder,
// which it creates, and returns the files relative to the folder. An existing file is not
// overwritten.
func Write(dir, language, name string) ([]string, error) {
	op := "new " + name
	if !slices.Contains(Languages(), language) {
		return nil, outboard.Errorf(outboard.Invalid, op, "%q is no language for functions: want go, c or as", language)
	}
	if !validName().MatchString(name) {
		return nil, outboard.Errorf(outboard.Invalid, op, "%q is no name: want lower-case letters, digits and dashes, a letter first, at most 63", name)
	}
	all, err := render(language, name)
	if err != nil {
		return nil, outboard.Errorf(outboard.Other, op, "%w", err)
	}
	written, err := writeAll(dir, all)
	if err != nil {
		return written, outboard.Errorf(outboard.Conflict, op, "%w", err)
	}
	return written, nil
}

// render returns the text of each file.
func render(language, name string) (map[string][]byte, error) {
	all := map[string][]byte{}
	root := path.Join("files", language)
	err := fs.WalkDir(files, root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := files.ReadFile(file)
		to := strings.TrimSuffix(strings.TrimPrefix(file, root+"/"), ending)
		all[to] = bytes.ReplaceAll(text, []byte("NAME"), []byte(name))
		return err
	})
	for _, s := range sources(language) {
		if err == nil {
			err = s.copy(all)
		}
	}
	return all, err
}

func (s source) copy(all map[string][]byte) error {
	entries, err := guest.Sources.ReadDir(s.from)
	for _, entry := range entries {
		if entry.IsDir() || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		text, err := guest.Sources.ReadFile(path.Join(s.from, entry.Name()))
		if err != nil {
			return err
		}
		all[path.Join(s.to, entry.Name())] = text
	}
	return err
}

func writeAll(dir string, all map[string][]byte) (written []string, err error) {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if _, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(name))); err == nil {
			return nil, fmt.Errorf("%s is there", filepath.Join(dir, name))
		}
	}
	for _, name := range names {
		if err := write(filepath.Join(dir, filepath.FromSlash(name)), all[name]); err != nil {
			return written, err
		}
		written = append(written, filepath.FromSlash(name))
	}
	return written, nil
}

func write(file string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err = f.Write(text); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
