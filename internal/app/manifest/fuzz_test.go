package manifest_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/outboard-run/outboard/internal/app/manifest"
)

// Whatever the text: a manifest that survives JSON, or problems with their places.
func FuzzParse(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/errors.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range archive.Files {
		if strings.HasSuffix(file.Name, ".yaml") {
			f.Add(file.Data)
		}
	}
	f.Add(shop(f))
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := manifest.Parse("app.yaml", text, manifest.Options{
			File:   func(string) error { return nil },
			Secret: func(string, manifest.Secret) error { return nil },
		})
		if err != nil {
			wellFormed(t, text, err)
			return
		}
		if m.App.Name == "" || len(m.App.Functions)+len(m.App.Workflows) == 0 {
			t.Errorf("an app that does nothing: %+v", m.App)
		}
		out, err := json.Marshal(m.App)
		if err != nil {
			t.Fatal(err)
		}
		var back manifest.App
		if err := json.Unmarshal(out, &back); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m.App, back, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("JSON loses something (-before +after):\n%s", diff)
		}
	})
}

func wellFormed(t *testing.T, text []byte, err error) {
	t.Helper()
	problems, ok := errors.AsType[manifest.Problems](err)
	if !ok || len(problems) == 0 {
		t.Fatalf("%T: %v", err, err)
	}
	lines := strings.Count(string(text), "\n") + strings.Count(string(text), "\r") + strings.Count(string(text), "\u0085") +
		strings.Count(string(text), "\u2028") + strings.Count(string(text), "\u2029") + 2
	for _, p := range problems {
		if p.File != "app.yaml" || p.Line < 1 || p.Line > lines || p.Column < 1 || p.Text == "" {
			t.Errorf("%+v, in a text of %d lines", p, lines)
		}
	}
}

func FuzzLock(f *testing.F) {
	text, err := os.ReadFile("testdata/app.lock")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := manifest.ParseLock("app.yaml", text)
		if err != nil {
			wellFormed(t, text, err)
			return
		}
		out, err := l.Text()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := manifest.ParseLock("app.yaml", out); err != nil || !cmp.Equal(l.Modules, back.Modules, cmpopts.EquateEmpty()) {
			t.Errorf("%q becomes %q: %v", text, out, err)
		}
	})
}
