package manifest_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/app/manifest"
)

// Arguments of a module, ways to launch steps and limits of sizes are read as they are written,
// and mistakes in them have a place.
func TestArgumentsAndLaunches(t *testing.T) {
	m, err := manifest.Parse("app.yaml", []byte(`app: shop
functions:
  cart: {module: cart.wasm, args: [--currency, EUR, ""]}
workflows:
  pay: {file: pay.yaml, launch: nimble}
  ship: ship.yaml
`), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"--currency", "EUR", ""}, m.App.Functions["cart"].Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"pay": "nimble"}, m.App.Launch); diff != "" {
		t.Errorf("launches (-want +got):\n%s", diff)
	}
	for text, want := range map[string]string{
		"functions: {cart: {module: cart.wasm, args: [{a: b}]}}":      "app.yaml:2:46: an argument is a text, as in: args: [--currency, EUR]",
		`functions: {cart: {module: cart.wasm, args: ["a\0b"]}}`:      "app.yaml:2:46: an argument is a text, as in: args: [--currency, EUR]",
		"workflows: {pay: {file: pay.yaml, launch: soon}}":            `app.yaml:2:43: "soon" is no way to launch steps: write lazy, eager or nimble`,
		"workflows: {pay: {launch: lazy}}":                            "app.yaml:2:18: the workflow has no file: name one, as in: file: thumbnail.yaml",
		"workflows: {pay: {file: pay.yaml, launch: [lazy]}}":          "app.yaml:2:43: this has to be lazy, eager or nimble",
		"functions: {cart: {module: cart.wasm, limits: {memory: x}}}": "app.yaml:2:",
	} {
		_, err := manifest.Parse("app.yaml", []byte("app: shop\n"+text+"\n"), manifest.Options{})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s:\ngot  %v\nwant %s", text, err, want)
		}
	}
}

// An import of a function means one of the same app unless it names another app.
func TestImportedFunction(t *testing.T) {
	for name, want := range map[string][2]string{"price": {"shop", "price"}, "bank/pay": {"bank", "pay"}} {
		i := manifest.Import{Kind: "function", Name: name}
		if app, function := i.Function("shop"); app != want[0] || function != want[1] || i.String() != "function:"+name {
			t.Errorf("%v means %s of %s, want %v", i, function, app, want)
		}
	}
}

// The content behind a reference is forgotten with the digest that led to it.
func TestLockContent(t *testing.T) {
	one, two := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	var l manifest.Lock
	for _, ref := range []string{"oci:a:v1", "oci:b:v1", "oci:c:v1"} {
		if err := l.Pin(ref, one, false); err != nil {
			t.Fatal(err)
		}
		l.SetContent(ref, two)
	}
	if err := l.Pin("oci:b:v1", two, true); err != nil {
		t.Fatal(err)
	}
	l.Retain([]string{"oci:a:v1", "oci:b:v1"})
	text, err := l.Text()
	if err != nil {
		t.Fatal(err)
	}
	back, err := manifest.ParseLock("app.lock", text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	want := manifest.Lock{Modules: map[string]string{"oci:a:v1": one, "oci:b:v1": two}, Content: map[string]string{"oci:a:v1": two}}
	if diff := cmp.Diff(want, back); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProblemText(t *testing.T) {
	problems := manifest.Problems{{File: "app.yaml", Text: "it is empty"}, {File: "app.yaml", Line: 3, Column: 5, Text: "unknown"}}
	if got, want := problems.Error(), "app.yaml: it is empty\napp.yaml:3:5: unknown"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
