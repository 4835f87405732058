package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each test that the Makefile leaves to `make test-programs` exists: a name without a test would
// select nothing there.
func TestProgramsOfMakefileExist(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^PROGRAMS :=((?:.*\\\n)*.*)$`).FindSubmatch(text)
	if list == nil {
		t.Fatal("the Makefile has no PROGRAMS")
	}
	names, known := strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " ")), testNames(t)
	for _, name := range names {
		if !slices.Contains(known, name) {
			t.Errorf("the Makefile's PROGRAMS has %s, which is no test", name)
		}
	}
	if len(names) == 0 {
		t.Error("the Makefile's PROGRAMS is empty")
	}
}

// testNames are the names of the functions in the tests of the packages that `make test-programs` runs.
func testNames(t *testing.T) (names []string) {
	t.Helper()
	own, _ := filepath.Glob("*_test.go") // errors are those of malformed patterns
	others, _ := filepath.Glob("../../internal/fabric/plain/*_test.go")
	for _, path := range slices.Concat(own, others) {
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
