package policy

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// TestErrors compares what is said of the wrong files in testdata.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/errors/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal("no files", err)
	}
	module := func(name string) ([]byte, error) {
		if name == "nowhere.wasm" {
			return nil, errors.New("there is none of this name")
		}
		return testModule(name)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = ParseOptions(filepath.Base(file), text, Options{Descriptors: shopFiles(t), Module: module})
			if err == nil {
				t.Fatal("no error")
			}
			checkGolden(t, strings.TrimSuffix(file, ".yaml")+".txt", err.Error()+"\n")
		})
	}
}

func checkGolden(t *testing.T, file, got string) {
	t.Helper()
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, string(want)); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}
