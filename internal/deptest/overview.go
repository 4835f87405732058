package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Map returns the map of the packages as Markdown: a table for each layer, a row for each package
// with its synopsis. Packages of commands, benchmarks and examples are left out.
func Map(packages []Package, layers []Layer) string {
	var b strings.Builder
	for i, layer := range layers[:len(layers)-1] {
		fmt.Fprintf(&b, "### %d. %s\n\n| package | what it does |\n|---|---|\n", i+1, strings.ToUpper(layer.Name[:1])+layer.Name[1:])
		for j := range layer.Groups {
			for _, p := range packages {
				if locate(layers, p.Dir) == (position{i, j}) {
					fmt.Fprintf(&b, "| [`%s`](../%s) | %s |\n", mapName(p.Dir), p.Dir, p.Synopsis)
				}
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func mapName(dir string) string {
	if dir == "." {
		return "outboard"
	}
	return dir
}

// reference matches a reference to the sources in a document: the name of a declaration, linked to
// its file, as in [`Pool.Acquire`](../internal/pool/acquire.go).
var reference = regexp.MustCompile("\\[`([^`]+)`\\]\\(([^)#]+\\.(?:go|c|h|api|proto))\\)")

// CheckReferences returns one line for every reference of the document that is wrong: a file that
// does not exist, or a name that the file does not declare.
func CheckReferences(document string) ([]string, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	var wrong []string
	for _, m := range reference.FindAllStringSubmatch(string(text), -1) {
		name, link := strings.TrimSuffix(m[1], "()"), m[2]
		if err := declared(filepath.Join(filepath.Dir(document), link), name); err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: [`%s`](%s): %v", filepath.Base(document), m[1], link, err))
		}
	}
	return wrong, nil
}

// declared returns an error unless file declares name. A name that is the file's own is a reference
// to the whole file.
func declared(file, name string) error {
	source, err := os.ReadFile(file)
	switch {
	case err != nil:
		return err
	case filepath.Base(file) == filepath.Base(name):
		return nil
	case filepath.Ext(file) != ".go":
		if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).Match(source) {
			return fmt.Errorf("%s is not in the file", name)
		}
		return nil
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, decl := range parsed.Decls {
		if declares(decl, name) {
			return nil
		}
	}
	return fmt.Errorf("%s is not declared in the file", name)
}

// declares reports whether decl declares name, which is "Type.Method" for a method.
func declares(decl ast.Decl, name string) bool {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv != nil {
			return receiver(d)+"."+d.Name.Name == name
		}
		return d.Name.Name == name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.Name == name {
					return true
				}
			case *ast.ValueSpec:
				for _, n := range s.Names {
					if n.Name == name {
						return true
					}
				}
			}
		}
	}
	return false
}
