package manifest_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/app/manifest"
)

func TestLock(t *testing.T) {
	ref, one, two := "oci:registry.example.org/shop/price:v1", "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	text, err := os.ReadFile("testdata/app.lock")
	if err != nil {
		t.Fatal(err)
	}
	var l manifest.Lock
	if err := l.Pin(ref, one, false); err != nil {
		t.Fatal(err)
	}
	written, err := l.Text()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(text), string(written)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if l, err = manifest.ParseLock("app.lock", text); err != nil {
		t.Fatal(err)
	}
	if err := l.Pin(ref, one, false); err != nil {
		t.Error(err)
	}
	err = l.Pin(ref, two, false)
	want := ref + " is " + two + " now, and was " + one +
		" when the app was last deployed: take what is there now with `outboard deploy --update`, or keep what was with " + ref + "@" + one
	if err == nil || err.Error() != want {
		t.Errorf("other bytes: got\n%v\nwant\n%s", err, want)
	}
	if err := l.Pin(ref, two, true); err != nil || l.Modules[ref] != two {
		t.Errorf("an update: %v, %v", err, l)
	}
	l.Retain([]string{"oci:other:v1"})
	if text, err := l.Text(); err != nil || len(text) > 0 {
		t.Errorf("a lock without references is %q, %v", text, err)
	}
}

func TestLockProblems(t *testing.T) {
	for text, want := range map[string]string{
		"modules: {a: b}":   `app.lock:1:14: "b" is no digest: delete the file, and deploy writes it anew`,
		"module: {}":        `app.lock:1:1: a lock has no key "module": did you mean "modules"? There are: content, modules`,
		"modules: [a]":      "app.lock:1:10: modules is a mapping of references, as in: oci:HOST/REPO:TAG: sha256:...",
		"modules: {":        "app.lock:1:1: this is no YAML: did not find expected node content",
		"modules: {}\na: 1": `app.lock:2:1: a lock has no key "a": there are: content, modules`,
	} {
		if _, err := manifest.ParseLock("app.lock", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestLockName(t *testing.T) {
	for name, want := range map[string]string{"app.yaml": "app.lock", "a/shop.yml": "a/shop.lock", "app": "app.lock"} {
		if got := manifest.LockName(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
