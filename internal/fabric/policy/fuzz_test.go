package policy

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse parses anything. What is refused has its place in the file; what is taken
// judges a call, and says the same when it is parsed again.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/errors/*.yaml", "testdata/*.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	files := shopFiles(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse("f", text, files)
		if err != nil {
			checkPlace(t, err, text)
			return
		}
		again, err := Parse("f", s.Source(), files)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(s.Policies(), again.Policies()); diff != "" {
			t.Error(diff)
		}
		v := &visit{tenant: "gold", payload: []byte{0x10, 0x07}}
		for range 2 {
			x, err := v.run(s)
			if err != nil && code(err) == 2 {
				t.Errorf("an error without a code: %v", err)
			}
			if n := inFlight(s); n != 0 || len(x.acquisitions) != 0 {
				t.Errorf("%d calls in flight, %d things are held", n, len(x.acquisitions))
			}
		}
	})
}

// checkPlace looks at the places of all errors that are joined in one.
func checkPlace(t *testing.T, err error, text []byte) {
	t.Helper()
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	lines := len(newSource("f", text).lines)
	for _, err := range list {
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%v has no place", err)
		}
		if e.Line < 1 || e.Line > lines+1 || e.Column < 1 {
			t.Fatalf("%v is outside of the file of %d lines", err, lines)
		}
	}
}
