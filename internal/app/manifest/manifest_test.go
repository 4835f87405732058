package manifest_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/manifest"
)

var rewrite = flag.Bool("rewrite", false, "write what is into testdata")

func shop(t testing.TB) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/shop.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestParse(t *testing.T) {
	m, err := manifest.Parse("app.yaml", shop(t), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := manifest.App{
		Name: "shop", Tenant: "default",
		Functions: map[string]manifest.Function{
			"cart": {
				Module: "cart.wasm", Entry: "handle", HTTP: true,
				Limits: manifest.Limits{
					Memory: 64 << 20, Deadline: 2 * time.Second, Fuel: 1e9, Concurrency: 8, Queue: -1, Response: 1 << 20, Window: 64 << 20,
				},
				Env: map[string]string{"KEY": "value", "ON": "true", "EMPTY": ""},
				Imports: []manifest.Import{
					{Kind: "bucket", Name: "seats"},
					{Kind: "function", Name: "price"},
					{Kind: "function", Name: "bank/pay"},
					{Kind: "arena", Name: "photos", Share: true},
					{Kind: "secret", Name: "token"},
					{Kind: "device", Name: "gpu", Share: true},
				},
			},
			"price": {
				Module: "oci:registry.example.org:5000/shop/price:v1@sha256:" + strings.Repeat("0123456789abcdef", 4), Entry: "handle",
			},
			"chat": {Module: "oci:chat:v1", Entry: "handle"},
		},
		Buckets: []string{"seats"},
		Arenas:  map[string]outboard.Bytes{"photos": 64 << 20},
		Secrets: map[string]manifest.Secret{"token": {Env: "TOKEN"}, "key": {File: "key.pem"}},
		Devices: map[string]manifest.Device{
			"gpu": {Selector: "type=gpu,vendor~nvidia,memory>=4GiB", Memory: 8 << 30, Weight: 3, Timeout: 2 * time.Second, Keep: time.Minute},
			"any": {NoWait: true},
		},
		Workflows: map[string]string{"thumbnail": "thumbnail.yaml"},
		Routes: []manifest.Route{
			{Path: "/cart/{id}", Methods: []string{"GET", "POST"}, Function: "cart"},
			{Path: "/cart/{id}", Methods: []string{"DELETE"}, Function: "price"},
			{Path: "/cart/new", Methods: []string{"GET", "POST"}, Function: "price"},
			{Path: "/files/{path...}", Function: "cart", Request: 8 << 20},
			{Path: "/resize", Methods: []string{"POST"}, Workflow: "thumbnail", Wait: true},
			{Path: "/ws/{room}", WebSocket: "chat", Origins: []string{"*.example.org"}},
		},
		Subjects: []manifest.Subject{
			{Subject: "orders.new", Queue: "shop", Function: "cart"}, {Subject: "orders.*.>", Workflow: "thumbnail"},
		},
		Schedules: []manifest.Schedule{
			{Cron: "*/5 * * * *", Function: "cart", Body: "{}"}, {Cron: "@hourly", Zone: "Europe/Berlin", Workflow: "thumbnail"},
		},
	}
	if diff := cmp.Diff(want, m.App); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	text, err := json.Marshal(m.App)
	if err != nil {
		t.Fatal(err)
	}
	var back manifest.App
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m.App, back); diff != "" {
		t.Errorf("JSON loses something (-before +after):\n%s", diff)
	}
	files := []string{"cart.wasm", "oci:chat:v1", m.App.Functions["price"].Module, "thumbnail.yaml"}
	if diff := cmp.Diff(files, m.App.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// Every manifest of testdata/errors.txtar has the problems that stand behind it, all of
// them at once.
func TestProblems(t *testing.T) {
	const file = "testdata/errors.txtar"
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(archive.Files); i += 2 {
		in, want := archive.Files[i], &archive.Files[i+1]
		t.Run(in.Name, func(t *testing.T) {
			got := "right\n"
			if _, err := manifest.Parse("app.yaml", in.Data, manifest.Options{}); err != nil {
				got = err.Error() + "\n"
			}
			if *rewrite {
				want.Data = []byte(got)
			}
			if diff := cmp.Diff(string(want.Data), got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if *rewrite {
		if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// What others know is told with its place.
func TestOutside(t *testing.T) {
	_, err := manifest.Parse("shop/app.yaml", shop(t), manifest.Options{
		File: func(name string) error {
			if name == "cart.wasm" || name == "thumbnail.yaml" {
				return errors.New(name + ": no such file")
			}
			return nil
		},
		Secret: func(name string, s manifest.Secret) error {
			if s.Env != "" {
				return errors.New("the variable " + s.Env + " is not set")
			}
			return nil
		},
	})
	want := strings.Join([]string{
		"shop/app.yaml:5:13: cart.wasm: no such file",
		"shop/app.yaml:24:18: the variable TOKEN is not set",
		"shop/app.yaml:29:14: thumbnail.yaml: no such file",
	}, "\n")
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestProblemPlaces(t *testing.T) {
	m, err := manifest.Parse("app.yaml", shop(t), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"functions/cart/module":      "app.yaml:5:13: x",
		"functions/price/entry":      "app.yaml:20:5: x", // it is not there
		"functions/cart/imports/2":   "app.yaml:13:9: x",
		"routes/2/path":              "app.yaml:33:12: x",
		"schedules/1":                "app.yaml:42:5: x",
		"nothing/of/it":              "app.yaml:1:1: x",
		"functions/cart/limits/fuel": "app.yaml:8:49: x",
	} {
		if got := m.Problem("x", strings.Split(path, "/")...).String(); got != want {
			t.Errorf("%s: got %s, want %s", path, got, want)
		}
	}
}

// The examples' manifests are right, but for files that are not built.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../examples/*/app.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := manifest.Parse(file, text, manifest.Options{}); err != nil {
			t.Error(err)
		}
	}
}

// So is the manifest that the documents show.
func TestDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/functions.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```yaml\napp:")
	block, _, _ = strings.Cut(block, "```")
	if !found {
		t.Fatal("the documents show no manifest: does this test still read them?")
	}
	if _, err := manifest.Parse("app.yaml", []byte("app:"+block), manifest.Options{}); err != nil {
		t.Error(err)
	}
}

// Buckets are a list, or a mapping that says more of them.
func TestBuckets(t *testing.T) {
	m, err := manifest.Parse("app.yaml", []byte("app: a\nfunctions: {f: {module: f.wasm, imports: [{bucket: seats}]}}\nbuckets: {seats: , sessions: {ttl: 1h}}\n"), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"seats", "sessions"}, m.App.Buckets); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]time.Duration{"sessions": time.Hour}, m.App.BucketTTL); diff != "" {
		t.Error(diff)
	}
}

// The group of another app's trigger can't be named.
func TestQueuesOfTheSystem(t *testing.T) {
	for queue, allowed := range map[string]bool{"workers": true, "outboard": true, "outboard/coffee/pot/work": false, "outboard/": false} {
		text := "app: a\nfunctions: {f: {module: f.wasm}}\nsubjects: [{subject: orders.new, function: f, queue: " + queue + "}]\n"
		if _, err := manifest.Parse("app.yaml", []byte(text), manifest.Options{}); (err == nil) != allowed {
			t.Errorf("queue %q: %v, want it allowed: %t", queue, err, allowed)
		}
	}
}
