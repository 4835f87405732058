package tenant

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/tenant/blob"
	"github.com/outboard-run/outboard/internal/workflow/core"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// noPeers is a tenant with no process on another node.
type noPeers struct{}

func (noPeers) ReadFile(context.Context, outboard.NodeID, string) ([]byte, error) {
	return nil, errors.New("there is no other node")
}

func (noPeers) StoreFile(context.Context, outboard.NodeID, string, []byte) error { return nil }

func testValues(t *testing.T) (v *values, released *[]engine.ID) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{blob.ValuesDir, blob.OwnersDir} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	artifacts, err := artifact.Open(artifact.Options{Dir: filepath.Join(dir, "artifacts")})
	if err != nil {
		t.Fatal(err)
	}
	files := &blob.Store{Dir: dir, Artifacts: artifacts, Peers: noPeers{}, Others: func() []outboard.NodeID { return nil }, Known: func() bool { return true }}
	released = new([]engine.ID)
	v = newValues(files, func(string) outboard.Bytes { return 1 << 20 }, func(id engine.ID) { *released = append(*released, id) })
	t.Cleanup(v.close)
	return v, released
}

// A step's result stays where it was put until the execution is released, and a result that was
// saved is there again after that, for as long as the execution is not forgotten.
func TestValues(t *testing.T) {
	v, released := testValues(t)
	ctx, id := t.Context(), engine.ID("tea/shop/e1")
	first, second := []byte("first"), bytes.Repeat([]byte("second"), 1000)
	one, err := v.Put(ctx, id, first)
	if err != nil {
		t.Fatal(err)
	}
	two, err := v.Put(ctx, id, second)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[engine.Extent][]byte{one: first, two: second} {
		if got, err := v.slice(id, at); err != nil || !bytes.Equal(got, want) {
			t.Errorf("at %+v there are %d bytes, want %d: %v", at, len(got), len(want), err)
		}
	}
	for name, at := range map[string]engine.Extent{"beyond the arena": {Offset: 1 << 20, Size: 1}, "negative": {Offset: -1, Size: 1}} {
		if _, err := v.slice(id, at); err == nil {
			t.Errorf("an extent %s was read", name)
		}
		if _, err := v.Save(ctx, id, at); err == nil {
			t.Errorf("an extent %s was saved", name)
		}
	}
	digest, err := v.Save(ctx, id, two)
	if err != nil || digest != artifact.Digest(second) {
		t.Fatalf("the digest is %s: %v", digest, err)
	}
	v.Release(id)
	if len(*released) != 1 || (*released)[0] != id {
		t.Errorf("released are %v", *released)
	}
	again, err := v.Load(ctx, id, core.Value{Digest: digest})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := v.slice(id, again); err != nil || !bytes.Equal(got, second) {
		t.Errorf("a loaded value has %d bytes: %v", len(got), err)
	}
	if got, err := v.Fetch(ctx, id, core.Value{Digest: digest}); err != nil || !bytes.Equal(got, second) {
		t.Errorf("a saved value has %d bytes: %v", len(got), err)
	}
	if err := v.Forget(ctx, id); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Fetch(ctx, id, core.Value{Digest: digest}); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("a forgotten value: %v", err)
	}
}

// An execution that puts more than its arena holds is refused, and harms no other one.
func TestValuesAreBounded(t *testing.T) {
	v, _ := testValues(t)
	if _, err := v.Put(t.Context(), "tea/shop/e1", make([]byte, 2<<20)); err == nil {
		t.Error("a value was put that is larger than the arena")
	}
	if _, err := v.Put(t.Context(), "tea/shop/e2", make([]byte, 1<<19)); err != nil {
		t.Errorf("another execution: %v", err)
	}
}
