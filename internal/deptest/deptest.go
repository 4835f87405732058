// Package deptest reads the sources of the module and reports violations of its architecture:
// imports against the direction of the layers, types and packages that have grown too large, and
// references in the documentation that do not exist.
//
// It parses files instead of running `go list`, so that every build tag is covered and no cached
// answer is used.
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

// A Package is one folder of Go files, without its tests.
type Package struct {
	// Dir is the folder relative to the root of the module, "." for the root itself.
	Dir string
	// Imports are the folders of the module's packages that it imports, sorted.
	Imports []string
	// Synopsis is the first sentence of the package comment, without "Package name".
	Synopsis string
	// Methods counts the methods of each type.
	Methods map[string]int
}

// Load reads the packages below root, the folder of the module.
func Load(root, module string) ([]Package, error) {
	found := map[string]*Package{}
	err := walkSources(root, func(dir, file string) error {
		if found[dir] == nil {
			found[dir] = &Package{Dir: dir, Methods: map[string]int{}}
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

// walkSources calls visit for every Go file below root that is not a test, with its folder relative
// to root.
func walkSources(root string, visit func(dir, file string) error) error {
	return filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
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
		return visit(filepath.ToSlash(dir), file)
	})
}

func skipDir(name string) bool {
	return name == "testdata" || name == "vendor" || name == "node_modules" ||
		strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")
}

func (p *Package) add(file, module string) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("read sources: %w", err)
	}
	if s := synopsis(parsed); s != "" {
		p.Synopsis = s
	}
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
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
			p.Methods[receiver(f)]++
		}
	}
	return nil
}

// synopsis returns the first sentence of a package comment that begins by Go's convention; a
// command's comment may begin in any way.
func synopsis(file *ast.File) string {
	text := file.Doc.Text()
	rest, ok := strings.CutPrefix(text, "Package "+file.Name.Name+" ")
	if !ok && file.Name.Name != "main" {
		return ""
	}
	if !ok {
		rest = text
	}
	rest = strings.Join(strings.Fields(rest), " ")
	if end := strings.Index(rest, ". "); end >= 0 {
		rest = rest[:end+1]
	}
	return strings.TrimSuffix(rest, ".")
}

// receiver returns the name of the receiver type of the method f.
func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func holds(tree, dir string) bool {
	if tree == "." || dir == "." {
		return tree == dir
	}
	return dir == path.Clean(tree) || strings.HasPrefix(dir, tree+"/")
}
