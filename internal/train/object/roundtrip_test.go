package object_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/object"
	"github.com/outboard-run/outboard/internal/train/object/objecttest"
)

// open returns a bucket of a server, with credentials of its own.
func open(t *testing.T, server *httptest.Server, c object.Credentials) *object.Bucket {
	t.Helper()
	o, err := object.Parse("s3://data/runs?region=eu&endpoint=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.Credentials = c
	b, err := object.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestObjectsComeBack(t *testing.T) {
	credentials := object.Credentials{Key: "key", Secret: "secret", Token: "token"}
	bucket := objecttest.New(credentials)
	server := httptest.NewServer(bucket)
	defer server.Close()
	b, ctx := open(t, server, credentials), context.Background()
	const name = "a b/ü"
	if has, err := b.Has(ctx, name); has || err != nil {
		t.Errorf("%v, %v: want that there is none", has, err)
	}
	if _, err := b.Get(ctx, name, 10); outboard.KindOf(err) != outboard.NotFound || !strings.Contains(err.Error(), "NoSuchKey") {
		t.Errorf("%v, want that it is not found", err)
	}
	if err := b.Put(ctx, name, []byte("content")); err != nil {
		t.Fatal(err)
	}
	if got, want := bucket.Names(), []string{"/data/runs/" + name}; !slices.Equal(got, want) {
		t.Errorf("kept %q, want %q", got, want)
	}
	if has, err := b.Has(ctx, name); !has || err != nil {
		t.Errorf("%v, %v: want that it is there", has, err)
	}
	if got, err := b.Get(ctx, name, 7); err != nil || string(got) != "content" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := b.Get(ctx, name, 6); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("%v, want that it is too large", err)
	}
	thief := open(t, server, object.Credentials{Key: "key", Secret: "guess", Token: "token"})
	if _, err := thief.Get(ctx, name, 7); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("%v, want that another secret is refused", err)
	}
	if err := b.Delete(ctx, name); err != nil || len(bucket.Names()) > 0 {
		t.Errorf("%v, kept %q: want nothing", err, bucket.Names())
	}
}
