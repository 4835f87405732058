package tenant

import (
	"net/http"
	"os"
	"strings"
	"testing"
)

const words = `app: words
functions:
  count: {module: words.wasm, imports: [{secret: token}]}
  other: {module: words.wasm}
secrets: {token: {env: TOKEN}}
routes: [{path: /count, methods: [POST], function: count}]
`

// A module that a Rust compiler made elsewhere, with no library of this project, is
// deployed and called like others.
func TestPrebuiltRust(t *testing.T) {
	module, err := os.ReadFile("../../guest/testdata/rust/words.wasm")
	if err != nil {
		t.Fatal(err)
	}
	b := openTenant(t)
	b.mustDeploy(words, map[string]string{"words.wasm": string(module)})
	for range 3 {
		b.mustCall("words/count", "a b a", "a 2\nb 1\ncall 1\n")
	}
	b.mustCall("words/count", "secret", "hush")
	if w := b.request("POST", "/words/count", "x"); w.Code != http.StatusOK || w.Body.String() != "x 1\nmethod POST\ncall 1\n" {
		t.Errorf("route: status %d, %q", w.Code, w.Body)
	}
	for request, want := range map[string]string{
		"panic": "unreachable", "\xff": "the request is not UTF-8",
	} {
		if _, err := b.call("words/count", request); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", request, err, want)
		}
	}
	_, err = b.call("words/other", "secret")
	if want := `import secret:token: function other may not: add "- secret: token" to functions.other.imports in the manifest of app words`; err == nil || strings.Count(err.Error(), "import secret") != 1 || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
	b.mustCall("words/count", "a", "a 1\ncall 1\n")
}
