package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each test that the Makefile leaves to `make test-long`, or out of `make race`, exists, in one package
// only: a name without a test would select nothing, and a test of that name elsewhere would run nowhere.
func TestNamesInMakefileExist(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	for variable, folders := range map[string][]string{
		"LONG_TESTS":      {".", "../../cmd/libopencl/ctest", "../../examples/ask", "../../examples/chat", "../../examples/digits", "../../examples/thumbnails", "../../internal/accel/opencl/cltest", "../../internal/cli", "../../internal/fabric/plain", "../../internal/function", "../../internal/function/optimize", "../../internal/pool/state", "../../outboardtest"},
		"RACE_FREE_TESTS": {"../../outboardtest", "../../internal/cli"},
	} {
		list := regexp.MustCompile(`(?m)^` + variable + ` :=((?:.*\\\n)*.*)$`).FindSubmatch(text)
		if list == nil {
			t.Fatalf("the Makefile has no %s", variable)
		}
		names, known, all := strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " ")), testNames(t, folders...), declared(t, "../..")
		for _, name := range names {
			if !slices.Contains(known, name) || all[name] > 1 {
				t.Errorf("the Makefile's %s has %s, the name of %d tests", variable, name, all[name])
			}
		}
		if len(names) == 0 {
			t.Errorf("the Makefile's %s is empty", variable)
		}
	}
}

// testNames are the names of the functions in the tests of folders.
func testNames(t *testing.T, folders ...string) (names []string) {
	t.Helper()
	var paths []string
	for _, folder := range folders {
		found, _ := filepath.Glob(filepath.Join(folder, "*_test.go")) // errors are those of malformed patterns
		paths = append(paths, found...)
	}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// declared counts the tests below a folder by name.
func declared(t *testing.T, root string) map[string]int {
	t.Helper()
	count, test := map[string]int{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range test.FindAllSubmatch(text, -1) {
			count[string(match[1])]++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return count
}
