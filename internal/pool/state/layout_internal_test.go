package state

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
)

// A table of layout 1 has its keys again after an upgrade, and nobody can read the authority's
// key in it any more.
func TestUpgradeLayout(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	opts := Options{Dir: t.TempDir(), Name: "a", TLS: noRoutes}
	s, err := Open(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"config/authority": "secret", "apps/shop": "app", "leases/a/opencl/0": "[]"} {
		if _, err := s.publishOnce(ctx, &nats.Msg{Subject: keyPrefix + key, Data: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(ctx, opts); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	e, err := s.Get(ctx, "apps/shop")
	if err != nil || string(e.Value) != "app" {
		t.Errorf("the app is %q, %v", e.Value, err)
	}
	for _, key := range []string{"config/authority", "leases/a/opencl/0"} {
		if e, err := s.Get(ctx, key); !errors.Is(err, ErrNotFound) {
			t.Errorf("%s is %q, %v, want nothing", key, e.Value, err)
		}
	}
	all, err := s.Entries(ctx, "")
	if err != nil || len(all) != 2 { // the app and the member
		t.Errorf("%d keys, %v, want 2", len(all), err)
	}
	log, err := s.OpenLog(ctx, AuthorityLog, LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if records, err := log.Read(ctx, AuthorityKey); err != nil || len(records) != 1 || string(records[0].Data) != "secret" {
		t.Errorf("the authority: %v, %v", records, err)
	}
}
