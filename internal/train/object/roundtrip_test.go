package object_test

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

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
	if _, err := b.Age(ctx, name); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("%v: want that there is none", err)
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
	if age, err := b.Age(ctx, name); age > time.Hour || err != nil {
		t.Errorf("%v, %v: want that it was written now", age, err)
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
	var listed []string
	for _, other := range []string{"a b/1", "a b/2", "a b/3", "a b/4", "b"} {
		if err := b.Put(ctx, other, nil); err != nil {
			t.Fatal(err)
		}
	}
	bucket.Backdate(time.Hour)
	if age, err := b.Age(ctx, name); err != nil || age < 59*time.Minute || age > 2*time.Hour {
		t.Errorf("age %v, %v, want an hour", age, err)
	}
	if _, err := b.Age(ctx, "nothing"); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("%v, want that there is none", err)
	}
	if err := b.List(ctx, "a b/", func(name string, size int64, age time.Duration) error {
		if age < 59*time.Minute || size > 7 {
			t.Errorf("%s of %d bytes is %v old", name, size, age)
		}
		listed = append(listed, name)
		return nil
	}); err != nil || !slices.Equal(listed, []string{"a b/1", "a b/2", "a b/3", "a b/4", name}) {
		t.Errorf("the list is %q, %v", listed, err)
	}
	if err := thief.List(ctx, "a b/", nil); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("%v, want that another secret gets no list", err)
	}
	for _, other := range append(listed[:4:4], "b") {
		if err := b.Delete(ctx, other); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Delete(ctx, name); err != nil || len(bucket.Names()) > 0 {
		t.Errorf("%v, kept %q: want nothing", err, bucket.Names())
	}
}
