package tenant

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/wasmbin"
)

const shop = `app: shop
functions:
  cart:
    module: guest.wasm
    env: {COLOUR: green}
    imports:
      - bucket: seats
      - function: price
      - function: other/far
      - arena: photos
        share: true
      - secret: token
  price: {module: guest.wasm, imports: [{arena: photos}]}
  size: {module: guest.wasm, env: {MODE: size}}
buckets: [seats]
arenas: {photos: 1MiB}
secrets: {token: {env: TOKEN}}
workflows: {order: order.yaml}
routes:
  - {path: /cart, methods: [POST], function: cart}
  - {path: /order, methods: [POST], workflow: order, wait: true}
`

const order = `document: {dsl: '1.0.0', namespace: shop, name: order, version: '1.0.0'}
do:
  - make: {call: cart, with: {body: "big 1000000"}}
  - measure: {call: size}
`

const other = "app: other\nfunctions: {far: {module: guest.wasm}}\n"

func openShop(t testing.TB) *bench {
	b := openTenant(t)
	b.mustDeploy(other, nil)
	b.mustDeploy(shop, map[string]string{"order.yaml": order})
	return b
}

// What a manifest deploys is called by hand, by a route and by a workflow.
func TestDeploy(t *testing.T) {
	b := openShop(t)
	b.mustCall("shop/cart", "echo hello", "hello")
	b.mustCall("shop/cart", "env COLOUR", "green")
	if w := b.request("POST", "/shop/cart", "echo by route"); w.Code != http.StatusOK || w.Body.String() != "by route" {
		t.Errorf("route: status %d, %q", w.Code, w.Body)
	}
	if w := b.request("POST", "/shop/order", "{}"); w.Code != http.StatusOK || w.Body.String() != "1000000" {
		t.Errorf("workflow's route: status %d, %q", w.Code, w.Body)
	}
	if w := b.request("POST", "/nothing/here", ""); w.Code != http.StatusNotFound {
		t.Errorf("unknown app: status %d, %q", w.Code, w.Body)
	}
}

// A step's large result is handed on by its place, and the execution tells.
func TestStepsTellPointers(t *testing.T) {
	b := openShop(t)
	var e client.Execution
	if err := b.ask("POST", "/v1/apps/shop/workflows/order/executions?wait=true", struct{}{}, &e); err != nil {
		t.Fatal(err)
	}
	if e.State != client.StateCompleted || string(e.Output) != "1000000" || len(e.Steps) != 2 {
		t.Fatalf("got %+v", e)
	}
	for _, s := range e.Steps {
		if s.Pointer < 1_000_000 || s.Copied > 1000 || s.Node != "harbour" {
			t.Errorf("step %s: %d bytes by pointer, %d copied, on %q", s.Name, s.Pointer, s.Copied, s.Node)
		}
	}
	var all []client.Execution
	if err := b.ask("GET", "/v1/executions?app=shop", nil, &all); err != nil || len(all) != 1 || all[0].ID != e.ID {
		t.Errorf("executions: %v, %v", all, err)
	}
	var again client.Execution
	if err := b.ask("GET", "/v1/apps/"+strings.Replace(e.ID, "/", "/executions/", 1), nil, &again); err != nil || len(again.Steps) != 2 {
		t.Errorf("execution: %+v, %v", again, err)
	}
}

// A function gets what its manifest lists, and of what it does not list an error that
// names the line.
func TestImports(t *testing.T) {
	b := openShop(t)
	b.mustCall("shop/cart", "add seats course 3", "3")
	b.mustCall("shop/cart", "add seats course -2", "1")
	if _, err := b.call("shop/cart", "add seats course -2"); err == nil {
		t.Error("a number fell below its least")
	}
	b.mustCall("shop/cart", "call price echo one", "one")
	b.mustCall("shop/cart", "call other/far echo two", "two")
	b.mustCall("shop/cart", "secret token", "hush")
	b.mustCall("shop/cart", "see photos boat", "")
	b.mustCall("shop/cart", "see photos", "boat")
	b.mustCall("shop/price", "see photos", "boat")
	b.mustCall("shop/price", "see photos none", "") // it does not share
	b.mustCall("shop/price", "see photos", "boat")
	for request, line := range map[string]string{
		"add seats course 1": `"- bucket: seats" to functions.price.imports`,
		"call cart echo x":   `"- function: cart" to functions.price.imports`,
		"secret token":       `"- secret: token" to functions.price.imports`,
	} {
		if _, err := b.call("shop/price", request); err == nil || !strings.Contains(err.Error(), line) {
			t.Errorf("%s: got %v, want one that names %s", request, err, line)
		}
	}
}

// An app of which anything is wrong is refused with all that is, and nothing of it is
// deployed.
func TestRefused(t *testing.T) {
	b := openTenant(t)
	text := "app: bad\nfunctions:\n  a: {module: a.wasm}\n  b: {module: guest.wasm}\nworkflows: {w: w.yaml}\n"
	flow := "document: {dsl: '1.0.0', namespace: bad, name: w, version: '1.0.0'}\ndo:\n  - one: {call: c}\n"
	_, err := b.deploy(text, map[string]string{"a.wasm": "\x00asm no module", "w.yaml": flow})
	got := client.ProblemsOf(err)
	if outboard.KindOf(err) != outboard.Invalid || len(got) != 2 {
		t.Fatalf("got %v: %v", outboard.KindOf(err), err)
	}
	if got[0].File != "app.yaml" || got[0].Line != 3 {
		t.Errorf("a module that can't be run: got %v", got[0])
	}
	if got[1].File != "w.yaml" || got[1].Line != 3 || !strings.Contains(got[1].Text, `function "c"`) {
		t.Errorf("a function that is not there: got %v", got[1])
	}
	var apps []client.App
	if err := b.ask("GET", "/v1/apps", nil, &apps); err != nil || len(apps) != 0 {
		t.Errorf("got apps %v, %v", apps, err)
	}
}

// A new version takes new calls at once, a roll-back brings the one before back, and a
// removed app is gone.
func TestVersions(t *testing.T) {
	b := openTenant(t)
	manifest := func(colour string) string {
		return "app: one\nfunctions: {f: {module: guest.wasm, env: {COLOUR: " + colour + "}}}\n"
	}
	for i, colour := range []string{"red", "blue"} {
		if made := b.mustDeploy(manifest(colour), nil); made.Version != i+1 {
			t.Errorf("got version %d", made.Version)
		}
		b.mustCall("one/f", "env COLOUR", colour)
	}
	previous := func() int { // what a roll-back would restore
		var apps []client.App
		if err := b.ask("GET", "/v1/apps", nil, &apps); err != nil || len(apps) != 1 {
			t.Fatalf("got %+v, %v", apps, err)
		}
		return apps[0].Previous
	}
	if got := previous(); got != 1 {
		t.Errorf("the previous version is %d, want 1", got)
	}
	var made client.Deployed
	if err := b.ask("POST", "/v1/apps/one/rollback", nil, &made); err != nil || made.Version != 3 || made.Of != 1 {
		t.Fatalf("got %+v, %v", made, err)
	}
	b.eventually(func() bool { return previous() == 0 })
	b.mustCall("one/f", "env COLOUR", "red")
	if err := b.tenant.registry.Remove(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() bool { _, err := b.call("one/f", "echo x"); return outboard.KindOf(err) == outboard.NotFound })
}

// An execution ends with the version with which it began.
func TestExecutionsKeepTheirVersion(t *testing.T) {
	b := openTenant(t)
	flow := "document: {dsl: '1.0.0', namespace: one, name: w, version: '1.0.0'}\ndo:\n  - first: {call: f, with: {body: sleep 300ms}}\n  - second: {call: f, with: {body: json env}}\n  - third: {call: f, with: {body: env COLOUR}}\n"
	manifest := func(colour string) string {
		return "app: one\nfunctions: {f: {module: guest.wasm, env: {COLOUR: '\"" + colour + "\"'}}}\nworkflows: {w: w.yaml}\n"
	}
	b.mustDeploy(manifest("red"), map[string]string{"w.yaml": flow})
	var e client.Execution
	if err := b.ask("POST", "/v1/apps/one/workflows/w/executions?id=mine", struct{}{}, &e); err != nil {
		t.Fatal(err)
	}
	for _, colour := range []string{"green", "blue", "black"} {
		b.mustDeploy(manifest(colour), map[string]string{"w.yaml": flow})
	}
	if err := b.ask("POST", "/v1/apps/one/workflows/w/executions?id=mine&wait=true", struct{}{}, &e); err != nil {
		t.Fatal(err)
	}
	var output string
	if err := json.Unmarshal(e.Output, &output); err != nil || output != "red" || e.Version != 1 {
		t.Errorf("got output %s of version %d, state %s", e.Output, e.Version, e.State)
	}
}

// A function whose module does not export its entry is refused with the names that it exports.
func TestEntryIsChecked(t *testing.T) {
	b := openTenant(t)
	_, err := b.deploy("app: one\nfunctions:\n  f: {module: guest.wasm, entry: handel}\n", nil)
	got := client.ProblemsOf(err)
	if len(got) != 1 || got[0].Line != 3 || !strings.Contains(got[0].Text, `the module exports no function "handel": `) || !strings.Contains(got[0].Text, "handle") {
		t.Errorf("got %v", err)
	}
	b.mustDeploy("app: one\nfunctions:\n  f: {module: guest.wasm, entry: handle}\n", nil)
}

// httpModule exports what guest/go/web exports, and answers a message with its first six bytes.
func httpModule() []byte {
	const head = "HTTP/1.1 418 Teapot\r\nContent-Length: 6\r\n\r\n"
	const at, size = 1024, 6
	call := func(function byte, arguments ...int32) (code []byte) {
		for _, v := range arguments {
			code = append(code, assemble.I32Const(v)...)
		}
		return append(code, wasmbin.OpCall, function, wasmbin.OpDrop)
	}
	return assemble.File(
		assemble.Types(
			assemble.Type([]byte{assemble.I32, assemble.I32, assemble.I32}, []byte{assemble.I32}),
			assemble.Type([]byte{assemble.I32, assemble.I32}, []byte{assemble.I32}),
			assemble.Type(nil, []byte{assemble.I32}),
			assemble.Type(nil, nil),
		),
		assemble.Imports(assemble.Import("outboard", "request_read", 0, 0), assemble.Import("outboard", "response_write", 0, 1)),
		assemble.Functions(2, 3), assemble.Memory(1, 1),
		assemble.Exports(assemble.Export("handle", 0, 2), assemble.Export(httpExport, 0, 3), assemble.Export("memory", 2, 0)),
		assemble.Code(
			assemble.Body(slices.Concat(call(0, at, size, 0), call(1, 0, int32(len(head))), call(1, at, size), assemble.I32Const(0))...),
			assemble.Body(),
		),
		assemble.Data(assemble.Active(0, []byte(head)...)),
	)
}

// A module that exports what guest/go/web exports takes HTTP messages, though the manifest does not
// say so.
func TestModuleTakesHTTP(t *testing.T) {
	if source, err := os.ReadFile("../../guest/go/web/http_wasip1.go"); err != nil || !strings.Contains(string(source), "\n//go:wasmexport "+httpExport+"\n") {
		t.Errorf("guest/go/web does not export %s: %v", httpExport, err)
	}
	b := openTenant(t)
	b.mustDeploy("app: one\nfunctions: {f: {module: web.wasm}}\nroutes: [{path: /hello, function: f}]\n", map[string]string{"web.wasm": string(httpModule())})
	if w := b.request("GET", "/one/hello", ""); w.Code != http.StatusTeapot || w.Body.String() != "GET /h" {
		t.Errorf("status %d, %q", w.Code, w.Body)
	}
	b.mustCall("one/f", "x", "POST /")
	var all []client.Function
	if err := b.ask("GET", "/v1/functions", nil, &all); err != nil || len(all) != 1 || !all[0].HTTP {
		t.Errorf("got %+v, %v", all, err)
	}
}

// A module gets the arguments of its manifest, after its name.
func TestArguments(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: one\nfunctions: {f: {module: guest.wasm, args: [--port, 80, \"a b\"]}, g: {module: guest.wasm}}\n", nil)
	b.mustCall("one/f", "args", "f --port 80 a b")
	b.mustCall("one/g", "args", "g")
}
