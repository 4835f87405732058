package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxSize bounds a manifest, in bytes.
const MaxSize = 128 << 10

// Options check the files and secrets that a manifest names.
type Options struct {
	// File checks the file of a module or a workflow by its name in the manifest. Without it
	// files are not checked.
	File func(name string) error
	// Secret checks that a secret has a value.
	Secret func(name string, s Secret) error
}

// Manifest is an app with the positions of its values in the text.
type Manifest struct {
	App  App
	file string
	// places has the position of each value by its path.
	places map[string]position
}

// Parse reads a manifest's text. Its error is Problems; name is the file's name in them.
func Parse(name string, text []byte, opts Options) (*Manifest, error) {
	r := &reader{file: name, places: map[string]position{}}
	m := &Manifest{file: name, places: r.places}
	if n := r.document(text); n != nil {
		r.app(pathNode{n, ""}, &m.App)
		for _, check := range r.later {
			check()
		}
		r.checkExternals(m, opts)
	}
	if len(r.problems) > 0 {
		return nil, r.problems.ordered()
	}
	return m, nil
}

// document returns the one YAML document of a text, nil if there is none.
func (r *reader) document(text []byte) *yaml.Node {
	if len(text) > MaxSize {
		r.problems = append(r.problems, Problem{r.file, 1, 1, fmt.Sprintf("%d bytes; a manifest has %d at most", len(text), MaxSize)})
		return nil
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document, second yaml.Node
	err := decoder.Decode(&document)
	switch {
	case errors.Is(err, io.EOF):
		r.problems = append(r.problems, Problem{r.file, 1, 1, "the manifest is empty: it begins with the app's name, as in: app: shop"})
		return nil
	case err != nil:
		r.syntax(text, err)
		return nil
	}
	if err := decoder.Decode(&second); err == nil {
		r.report(&second, "a second document: a file has one app")
	} else if !errors.Is(err, io.EOF) {
		r.syntax(text, err)
	}
	return document.Content[0]
}

// checkExternals checks files and secrets.
func (r *reader) checkExternals(m *Manifest, opts Options) {
	if opts.File != nil {
		for name, f := range m.App.Functions {
			r.checkExternal(m, f.Module, opts.File, "functions", name, "module")
		}
		for name, file := range m.App.Workflows {
			r.checkExternal(m, file, opts.File, "workflows", name)
		}
	}
	if opts.Secret != nil {
		for name, s := range m.App.Secrets {
			r.checkExternal(m, name, func(name string) error { return opts.Secret(name, s) }, "secrets", name)
		}
	}
}

func (r *reader) checkExternal(m *Manifest, name string, about func(string) error, path ...string) {
	if name == "" {
		return // its absence was reported
	}
	if err := about(name); err != nil {
		r.problems = append(r.problems, m.Problem(err.Error(), path...))
	}
}

// Problem returns a problem with the value at a path of keys and indices, such as "functions",
// "cart", "module". A value that is missing has the position of its parent.
func (m *Manifest) Problem(text string, path ...string) Problem {
	p := Problem{File: m.file, Line: 1, Column: 1, Text: text}
	for ; len(path) > 0; path = path[:len(path)-1] {
		if position, ok := m.places[strings.Join(path, "/")]; ok {
			p.Line, p.Column = position.line, position.column
			break
		}
	}
	return p
}
