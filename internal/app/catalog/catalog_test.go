package catalog_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

func open(t *testing.T, s *state.State, self outboard.NodeID) *catalog.Catalog {
	t.Helper()
	r, err := catalog.Open(t.Context(), catalog.Options{State: s, Self: self})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func eventually(t *testing.T, r *catalog.Catalog, what string, f func() bool) {
	t.Helper()
	statetest.Eventually(t, r.Changed, what, f)
}

// version is one of an app with a module.
func version(app, tenant, module string) catalog.Version {
	return catalog.Version{
		App: manifest.App{
			Name: app, Tenant: tenant, Functions: map[string]manifest.Function{"cart": {Module: "cart.wasm", Entry: "handle"}},
			Secrets: map[string]manifest.Secret{"token": {Env: "TOKEN"}},
		},
		File: "app.yaml", Files: map[string]string{"cart.wasm": module}, Secrets: map[string][]byte{"token": []byte("of " + module)},
	}
}

func apply(t *testing.T, r *catalog.Catalog, v catalog.Version) catalog.Version {
	t.Helper()
	v, err := r.Apply(t.Context(), v)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func moduleOf(r *catalog.Catalog, app string) string {
	a, ok := r.Get(app)
	if !ok {
		return ""
	}
	return a.Current().Files["cart.wasm"]
}

func TestVersions(t *testing.T) {
	s := statetest.Open(t)
	a, b := open(t, s, "harbour"), open(t, s, "dinghy")
	for i, module := range []string{"one", "two", "three"} {
		v := apply(t, a, version("shop", "default", module))
		if v.Number != i+1 || v.By != "harbour" || v.Applied.IsZero() {
			t.Errorf("got %+v", v)
		}
	}
	eventually(t, b, "the third is in force", func() bool { return moduleOf(b, "shop") == "three" })
	for i, want := range []string{"two", "one"} {
		v, err := b.Rollback(t.Context(), "shop")
		if err != nil || v.Number != i+4 || v.Of != 2-i || string(v.Secrets["token"]) != "of "+want {
			t.Fatalf("got %+v, %v, want %q", v, err, want)
		}
		eventually(t, a, want+" is in force again", func() bool { return moduleOf(a, "shop") == want })
	}
	if _, err := b.Rollback(t.Context(), "shop"); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("roll back beyond the first: %v", err)
	}
	got, _ := a.Get("shop")
	want := version("shop", "default", "one")
	want.Number, want.Of, want.By, want.Applied = 5, 1, "dinghy", got.Current().Applied
	if diff := cmp.Diff(want, *got.Current()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"one": true, "two": true, "three": true}, a.Files()); diff != "" {
		t.Errorf("files of the versions that are kept (-want +got):\n%s", diff)
	}
}

// Numbers are never given twice: executions refer to them.
func TestRemove(t *testing.T) {
	s := statetest.Open(t)
	r := open(t, s, "harbour")
	apply(t, r, version("shop", "default", "one"))
	apply(t, r, version("shop", "default", "two"))
	eventually(t, r, "it is there", func() bool { return moduleOf(r, "shop") == "two" })
	if err := r.Remove(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	eventually(t, r, "it is gone", func() bool { return len(r.List()) == 0 })
	for what, err := range map[string]error{
		"removed":     r.Remove(t.Context(), "shop"),
		"never there": r.Remove(t.Context(), "bank"),
		"rolled back": func() error { _, err := r.Rollback(t.Context(), "shop"); return err }(),
	} {
		if outboard.KindOf(err) != outboard.NotFound || !strings.Contains(err.Error(), "outboard deploy") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if v := apply(t, r, version("shop", "bank", "three")); v.Number != 3 {
		t.Errorf("version %d is given again", v.Number)
	}
	eventually(t, r, "it is there again", func() bool { return moduleOf(r, "shop") == "three" })
	if _, err := r.Rollback(t.Context(), "shop"); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("roll back to what was removed: %v", err)
	}
}

func TestTenants(t *testing.T) {
	r := open(t, statetest.Open(t), "harbour")
	apply(t, r, version("shop", "default", "one"))
	if _, err := r.Apply(t.Context(), version("shop", "other", "one")); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("another tenant took the app: %v", err)
	}
}

// The largest versions leave room for the last in one value of the table.
func TestKept(t *testing.T) {
	r := open(t, statetest.Open(t), "harbour")
	large := version("shop", "default", "one")
	large.Secrets["token"] = make([]byte, catalog.MaxVersion*3/4-2048) // which JSON makes a third longer
	for range 4 {
		apply(t, r, large)
	}
	eventually(t, r, "the last is there", func() bool { a, _ := r.Get("shop"); return a.Current() != nil && a.Current().Number == 4 })
	if a, _ := r.Get("shop"); len(a.Versions) < 2 || len(a.Versions) > 3 {
		t.Errorf("%d large versions are kept", len(a.Versions))
	}
	large.Secrets["token"] = make([]byte, catalog.MaxVersion)
	if _, err := r.Apply(t.Context(), large); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("too large a version: %v", err)
	}
}

// A record that can't be read leaves what was known.
func TestBrokenRecord(t *testing.T) {
	s := statetest.Open(t)
	r := open(t, s, "harbour")
	apply(t, r, version("shop", "default", "one"))
	eventually(t, r, "it is there", func() bool { return moduleOf(r, "shop") == "one" })
	for _, text := range []string{"{", `{"versions":[{"number":2,"app":{"app":"bank"}}]}`} {
		if _, err := s.Put(t.Context(), "apps/shop", []byte(text), 0); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, r, version("bank", "default", "two"))
	eventually(t, r, "the other is there", func() bool { return moduleOf(r, "bank") == "two" })
	if got := moduleOf(r, "shop"); got != "one" {
		t.Errorf("got %q", got)
	}
}

func TestForeign(t *testing.T) {
	r := open(t, statetest.Open(t), "harbour")
	add := func(app, tenant string, imports ...string) {
		t.Helper()
		v := version(app, tenant, "one")
		f := v.App.Functions["cart"]
		for _, name := range imports {
			f.Imports = append(f.Imports, manifest.Import{Kind: manifest.ImportFunction, Name: name})
		}
		v.App.Functions["cart"] = f
		apply(t, r, v)
	}
	add("bank", "default")
	add("post", "default", "mail/cart", "shop/cart")
	add("mail", "default", "post/cart")
	add("spy", "other")
	eventually(t, r, "all are there", func() bool { return len(r.List()) == 4 })
	m, err := manifest.Parse("app.yaml", []byte(`app: shop
functions:
  price: {module: p.wasm}
  cart:
    module: c.wasm
    imports:
      - function: price
      - function: bank/cart
      - function: bank/pay
      - function: spy/cart
      - function: none/cart
      - function: mail/cart
`), manifest.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		`app.yaml:10:19: the app spy is of tenant other, and this one of tenant default: tenants never call each other`,
		`app.yaml:11:19: there is no app "none": deploy it first; there are: bank, mail, post, spy`,
		`app.yaml:12:19: shop/cart -> mail/cart -> post/cart -> shop/cart: a call would wait for itself; take out one of these imports`,
		`app.yaml:9:19: the app bank has no function "pay": it has cart`,
	}, "\n")
	if diff := cmp.Diff(want, manifest.Problems(r.Foreign(m)).Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A change by another view is awaited; the wait for a change that never comes ends.
func TestAwait(t *testing.T) {
	s := statetest.Open(t)
	a, b := open(t, s, "harbour"), open(t, s, "dinghy")
	heard := make(chan error, 1)
	go func() { heard <- b.Await(t.Context(), "shop", 2) }()
	apply(t, a, version("shop", "default", "one"))
	apply(t, a, version("shop", "default", "two"))
	if err := <-heard; err != nil || moduleOf(b, "shop") != "two" {
		t.Errorf("got %q, %v", moduleOf(b, "shop"), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Await(ctx, "shop", 3); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("got %v", err)
	}
}

// Another node of the pool may write versions of its apps to the table. The tenant of an app names a
// folder of each node, in which the tenant's process may read and write.
func TestRecordsOfHostileNodes(t *testing.T) {
	s := statetest.Open(t)
	r := open(t, s, "harbour")
	apply(t, r, version("taken", "default", "one"))
	for name, tenant := range map[string]string{
		"parent": "..", "far": "../../../etc", "absolute": "/etc", "below": "shop/sub", "none": "", "upper": "Shop", "taken": "..", "..": "shop",
	} {
		v := version(name, tenant, "evil")
		v.Number, v.By = 2, "dinghy"
		text, err := json.Marshal(catalog.App{Versions: []catalog.Version{v}})
		if err == nil {
			_, err = s.Put(t.Context(), "apps/"+name, text, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	apply(t, r, version("after", "default", "one")) // comes after all of them
	eventually(t, r, "the last app", func() bool { return moduleOf(r, "after") == "one" })
	if got := r.Names(); !slices.Equal(got, []string{"after", "taken"}) || moduleOf(r, "taken") != "one" {
		t.Errorf("apps %q, taken has %q", got, moduleOf(r, "taken"))
	}
}
