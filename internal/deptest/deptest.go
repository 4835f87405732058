// Package deptest reads the sources of the module and says which imports go
// against the direction that docs/overview.md draws.
//
// It reads files instead of asking `go list`, so that every build tag is covered
// and no cached answer can pass for a fresh one.
package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A Layer is a row of the house: its packages may import those of lower rows.
type Layer struct {
	Name string
	// Trees are folders from the module's root, "." for the root package alone.
	// A tree holds everything below it.
	Trees []string
	// Apart says that the trees of this layer never import each other.
	Apart bool
}

// A Package is one folder of Go files, without its tests.
type Package struct {
	// Dir is the folder from the module's root, "." for the root.
	Dir string
	// Imports are the module's own packages that it imports, as folders.
	Imports []string
	// Documented says that a file has a package comment.
	Documented bool
}

// Load reads the packages below root, the folder of module.
func Load(root, module string) ([]Package, error) {
	found := map[string]*Package{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && skipDir(entry.Name()) && file != root:
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(file))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		if found[dir] == nil {
			found[dir] = &Package{Dir: dir}
		}
		return found[dir].add(file, module)
	})
	packages := make([]Package, 0, len(found))
	for _, p := range found {
		slices.Sort(p.Imports)
		p.Imports = slices.Compact(p.Imports)
		packages = append(packages, *p)
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Dir, b.Dir) })
	return packages, err
}

func skipDir(name string) bool {
	return name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func (p *Package) add(file, module string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return fmt.Errorf("read imports: %w", err)
	}
	p.Documented = p.Documented || documents(parsed)
	for _, spec := range parsed.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", file, spec.Path.Value, err)
		}
		if name == module {
			p.Imports = append(p.Imports, ".")
		} else if dir, ok := strings.CutPrefix(name, module+"/"); ok {
			p.Imports = append(p.Imports, dir)
		}
	}
	return nil
}

func documents(file *ast.File) bool {
	text := file.Doc.Text()
	return strings.HasPrefix(text, "Package "+file.Name.Name+" ") || file.Name.Name == "main" && text != ""
}

// Check returns one line for every package that breaks a rule.
func Check(packages []Package, layers []Layer) []string {
	var wrong []string
	for _, p := range packages {
		if !p.Documented {
			wrong = append(wrong, fmt.Sprintf("%s: no package comment that begins with its name", p.Dir))
		}
		from, tree := find(layers, p.Dir)
		if from < 0 {
			wrong = append(wrong, fmt.Sprintf("%s: belongs to no layer; add it to one in internal/deptest", p.Dir))
			continue
		}
		for _, dir := range p.Imports {
			if reason := forbidden(layers, from, tree, dir); reason != "" {
				wrong = append(wrong, fmt.Sprintf("%s imports %s: %s", p.Dir, dir, reason))
			}
		}
	}
	return wrong
}

// forbidden says why a package of layers[from] in tree may not import dir.
func forbidden(layers []Layer, from int, tree, dir string) string {
	to, other := find(layers, dir)
	switch {
	case to < 0:
		return "it belongs to no layer"
	case to > from:
		return fmt.Sprintf("%s do not know %s", layers[from].Name, layers[to].Name)
	case to == from && layers[from].Apart && other != tree:
		return layers[from].Name + " never import each other; declare a small interface, internal/node joins them"
	}
	return ""
}

// find returns the layer of dir and the tree that holds it: the longest one.
func find(layers []Layer, dir string) (int, string) {
	layer, tree := -1, ""
	for i, l := range layers {
		for _, t := range l.Trees {
			if holds(t, dir) && len(t) > len(tree) {
				layer, tree = i, t
			}
		}
	}
	return layer, tree
}

func holds(tree, dir string) bool {
	if tree == "." || dir == "." {
		return tree == dir
	}
	return dir == path.Clean(tree) || strings.HasPrefix(dir, tree+"/")
}
