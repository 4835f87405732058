package artifact_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	orasoci "oras.land/oras-go/v2/content/oci"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// module is a WebAssembly module with a custom section of a name.
func module(name string) []byte {
	return append([]byte("\x00asm\x01\x00\x00\x00\x00"+string(rune(len(name)+1))+string(rune(len(name)))), name...)
}

func open(t *testing.T, dir string, source artifact.Source) *artifact.Store {
	t.Helper()
	s, err := artifact.Open(artifact.Options{Dir: dir, Source: source})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func put(t *testing.T, s *artifact.Store, content []byte) string {
	t.Helper()
	digest, err := s.Put(t.Context(), content)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func blobOf(dir, digest string) string {
	return filepath.Join(dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	digest := put(t, s, []byte("hello"))
	if want := "sha256:2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"; digest != want {
		t.Errorf("got %s, want %s", digest, want)
	}
	again := open(t, dir, nil) // as another process
	if got, err := again.Read(t.Context(), digest); err != nil || string(got) != "hello" {
		t.Errorf("got %q, %v", got, err)
	}
	if n, err := again.Size(digest); err != nil || n != 5 {
		t.Errorf("size %d, %v", n, err)
	}
	if has, err := again.Has(digest); err != nil || !has {
		t.Errorf("has %v, %v", has, err)
	}
	other := artifact.Digest([]byte("other"))
	if has, err := s.Has(other); err != nil || has {
		t.Errorf("has what it was not given: %v, %v", has, err)
	}
	if _, err := s.Read(t.Context(), other); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("read what is not there: %v", err)
	}
	for _, wrong := range []string{"", "sha256:", "sha256:../../x", "md5:00", strings.ToUpper(digest), digest + "0"} {
		if _, err := s.Read(t.Context(), wrong); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%q is taken for a digest: %v", wrong, err)
		}
		if _, err := s.Save(t.Context(), wrong, strings.NewReader("x")); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%q is taken for a digest: %v", wrong, err)
		}
	}
}

// Content that is not what its digest says is never kept and never given.
func TestDigestsAreVerified(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	want := artifact.Digest([]byte("right"))
	if err := s.Write(t.Context(), want, []byte("wrong")); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("kept: %v", err)
	}
	if _, err := s.Save(t.Context(), want, io.MultiReader(strings.NewReader("ri"), &broken{})); !errors.Is(err, errBroken) {
		t.Errorf("kept what was cut off: %v", err)
	}
	if _, err := s.Read(t.Context(), want); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("it is there: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "ingest"))
	if err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	digest := put(t, s, []byte("right"))
	if err := os.WriteFile(blobOf(dir, digest), []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Read(t.Context(), digest); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("gave %q, %v", got, err)
	}
	if err := s.Write(t.Context(), digest, []byte("right")); err != nil {
		t.Error(err)
	}
	if got, err := s.Read(t.Context(), digest); err != nil || string(got) != "right" {
		t.Errorf("is not healed: %q, %v", got, err)
	}
}

var errBroken = errors.New("cut off")

type broken struct{}

func (*broken) Read([]byte) (int, error) { return 0, errBroken }

// nodes is another node, and those with further copies of the same files.
type nodes struct {
	content map[string][]byte
	asked   []string
	further []func() io.Reader
}

func (n *nodes) Copies(_ context.Context, digest string) iter.Seq2[io.ReadCloser, error] {
	return func(yield func(io.ReadCloser, error) bool) {
		n.asked = append(n.asked, digest)
		if content, ok := n.content[digest]; ok && !yield(io.NopCloser(bytes.NewReader(content)), nil) {
			return
		}
		for _, r := range n.further {
			if !yield(io.NopCloser(r()), nil) {
				return
			}
		}
		yield(nil, outboard.Errorf(outboard.NotFound, "", "no node has it"))
	}
}

// lost is the file of a node that is lost while it sends the file.
type lost struct{}

func (lost) Read([]byte) (int, error) {
	return 0, outboard.Errorf(outboard.Unreachable, "", "the node is lost")
}

// A file is fetched from the next node if a node is lost while it sends the file, or has a corrupt
// copy.
func TestFetchFromNextNode(t *testing.T) {
	digest := artifact.Digest([]byte("right"))
	for name, get := range map[string]func(s *artifact.Store) error{
		"fetch":  func(s *artifact.Store) error { _, err := s.Fetch(t.Context(), digest); return err },
		"ensure": func(s *artifact.Store) error { return s.Ensure(t.Context(), digest) },
	} {
		n := &nodes{content: map[string][]byte{digest: []byte("rot")}, further: []func() io.Reader{
			func() io.Reader { return io.MultiReader(strings.NewReader("ri"), lost{}) },
			func() io.Reader { return strings.NewReader("right") },
		}}
		s := open(t, t.TempDir(), n)
		if err := get(s); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, err := s.Read(t.Context(), digest); err != nil || string(got) != "right" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A node that sends a corrupt copy deletes it, tells the receiver, and has the file from another node
// afterwards. A file that was stored in its place meanwhile stays.
func TestSenderDeletesCorruptFiles(t *testing.T) {
	dir, digest := t.TempDir(), artifact.Digest([]byte("right"))
	n := &nodes{content: map[string][]byte{digest: []byte("right")}}
	s := open(t, dir, n)
	send := func() (*artifact.Sender, func() (string, error)) {
		t.Helper()
		f, err := artifact.OpenSender(s, digest)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f, func() (string, error) {
			content, err := io.ReadAll(f)
			return string(content), err
		}
	}
	put(t, s, []byte("right"))
	if f, read := send(); f.Size() != 5 {
		t.Errorf("it has %d bytes", f.Size())
	} else if got, err := read(); got != "right" || err != nil {
		t.Errorf("it sends %q, %v", got, err)
	}
	rot := func() {
		t.Helper()
		if err := os.WriteFile(blobOf(dir, digest), []byte("rot"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	rot()
	_, first := send()
	_, second := send()
	if _, err := first(); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("a corrupt copy: %v", err)
	}
	if has, err := s.Has(digest); has || err != nil {
		t.Errorf("the corrupt copy is there: %t, %v", has, err)
	}
	if err := s.Ensure(t.Context(), digest); err != nil {
		t.Error(err)
	}
	if _, err := second(); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("the same copy: %v", err)
	}
	if got, err := s.Read(t.Context(), digest); err != nil || string(got) != "right" {
		t.Errorf("afterwards there is %q, %v", got, err)
	}
	if _, err := artifact.OpenSender(s, artifact.Digest([]byte("none"))); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("of no file: %v", err)
	}
}

// What is fetched without being stored is verified, from one node after the other, and bounded.
func TestFetchUnstored(t *testing.T) {
	digest := artifact.Digest([]byte("right"))
	n := &nodes{content: map[string][]byte{digest: []byte("rot")}, further: []func() io.Reader{func() io.Reader { return strings.NewReader("right") }}}
	s := open(t, t.TempDir(), n)
	if got, err := artifact.FetchUnstored(t.Context(), s, digest, 5); err != nil || string(got) != "right" {
		t.Errorf("%q, %v", got, err)
	}
	if has, err := s.Has(digest); has || err != nil {
		t.Errorf("it is stored: %t, %v", has, err)
	}
	if _, err := artifact.FetchUnstored(t.Context(), s, digest, 4); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("of a larger one: %v", err)
	}
	if _, err := artifact.FetchUnstored(t.Context(), s, artifact.Digest([]byte("none")), 5); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("of what no node has intact: %v", err)
	}
	if _, err := artifact.FetchUnstored(t.Context(), open(t, t.TempDir(), nil), digest, 5); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("without other nodes: %v", err)
	}
}

func TestFetch(t *testing.T) {
	right, wrong, gone := artifact.Digest([]byte("right")), artifact.Digest([]byte("wrong")), artifact.Digest([]byte("gone"))
	n := &nodes{content: map[string][]byte{right: []byte("right"), wrong: []byte("other")}}
	s := open(t, t.TempDir(), n)
	for range 2 {
		if got, err := s.Fetch(t.Context(), right); err != nil || string(got) != "right" {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if _, err := s.Fetch(t.Context(), wrong); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("took another content: %v", err)
	}
	if _, err := s.Fetch(t.Context(), gone); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("fetched what nobody has: %v", err)
	}
	if diff := cmp.Diff([]string{right, wrong, gone}, n.asked); diff != "" {
		t.Errorf("asked for (-want +got):\n%s", diff)
	}
}

// Other tools can read what has a name.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	digest := put(t, s, module("cart"))
	created := time.Date(2026, time.March, 1, 2, 3, 4, 0, time.UTC)
	named, err := s.Name(t.Context(), "shop/cart:v1", digest, artifact.Info{Created: created, Author: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	want := artifact.Named{Name: "shop/cart:v1", Manifest: named.Manifest, Module: digest, Size: int64(len(module("cart"))), Created: created}
	got, err := s.Resolve(t.Context(), "shop/cart:v1")
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	other, err := orasoci.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	d, err := other.Resolve(t.Context(), "shop/cart:v1")
	if err != nil || string(d.Digest) != named.Manifest {
		t.Errorf("oras finds %v, %v", d, err)
	}
	after, err := other.Predecessors(t.Context(), d)
	if err != nil || len(after) > 0 {
		t.Errorf("oras: %v, %v", after, err)
	}

	second := put(t, s, module("second"))
	if _, err := s.Name(t.Context(), "shop/cart:v1", second, artifact.Info{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Name(t.Context(), "price:v1", second, artifact.Info{}); err != nil {
		t.Fatal(err)
	}
	all, err := s.Names(t.Context())
	if err != nil || len(all) != 2 || all[0].Name != "price:v1" || all[1].Module != second {
		t.Errorf("names: %+v, %v", all, err)
	}
	if err := s.Unname(t.Context(), "price:v1"); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"twice":   s.Unname(t.Context(), "price:v1"),
		"nothing": func() error { _, err := s.Resolve(t.Context(), "price:v1"); return err }(),
		"missing": func() error {
			_, err := s.Name(t.Context(), "x:y", artifact.Digest(nil), artifact.Info{})
			return err
		}(),
	} {
		if outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("%s: %v", what, err)
		}
	}
	text := put(t, s, []byte("document: {}"))
	if _, err := s.Name(t.Context(), "x:y", text, artifact.Info{}); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("named what is no module: %v", err)
	}
	if _, err := s.Name(t.Context(), "X Y", second, artifact.Info{}); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("took a name that is none: %v", err)
	}
}

// Discard deletes only what was named to it, nothing needs, and nobody has asked for since.
func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	needed, unneeded, asked, other := put(t, s, []byte("needed")), put(t, s, []byte("unneeded")), put(t, s, []byte("asked")), put(t, s, []byte("other"))
	named := put(t, s, module("named"))
	if _, err := s.Name(t.Context(), "cart:v1", named, artifact.Info{}); err != nil {
		t.Fatal(err)
	}
	used := time.Now().Add(-time.Hour)
	for _, digest := range []string{needed, unneeded, asked, other, named} {
		if err := os.Chtimes(blobOf(dir, digest), used, used); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Has(asked); err != nil {
		t.Fatal(err)
	}
	missing := artifact.Digest([]byte("missing"))
	got, err := s.Discard(t.Context(), []string{needed, unneeded, asked, named, missing}, map[string]bool{needed: true}, used)
	if diff := cmp.Diff(artifact.Collected{Files: 1, Bytes: int64(len("unneeded"))}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for digest, want := range map[string]bool{needed: true, asked: true, other: true, named: true, unneeded: false} {
		if has, err := s.Has(digest); err != nil || has != want {
			t.Errorf("%s: is there %v, want %v: %v", digest, has, want, err)
		}
	}
}

func TestCollect(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, nil)
	needed, unneeded, asked, fresh := put(t, s, []byte("needed")), put(t, s, []byte("unneeded")), put(t, s, []byte("asked")), put(t, s, []byte("fresh"))
	named := put(t, s, module("named"))
	if _, err := s.Name(t.Context(), "cart:v1", named, artifact.Info{}); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "ingest", "new-1")
	if err := os.WriteFile(cut, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-2 * time.Hour)
	for _, f := range append(files, cut) {
		if f == blobOf(dir, fresh) {
			continue
		}
		if err := os.Chtimes(f, old, old); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Has(asked); err != nil {
		t.Fatal(err)
	}
	got, err := s.Collect(t.Context(), map[string]bool{needed: true}, time.Hour)
	if diff := cmp.Diff(artifact.Collected{Files: 2, Bytes: int64(len("unneeded") + len("half"))}, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for digest, want := range map[string]bool{needed: true, asked: true, fresh: true, named: true, unneeded: false} {
		if has, err := s.Has(digest); err != nil || has != want {
			t.Errorf("%s: is there %v, want %v: %v", digest, has, want, err)
		}
	}
	if _, err := s.Resolve(t.Context(), "cart:v1"); err != nil {
		t.Error(err)
	}
}

// Several processes use one folder: nothing is lost, and nothing half is seen.
func TestManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	digest := artifact.Digest(module("cart"))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s, err := artifact.Open(artifact.Options{Dir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			for n := range 10 {
				name := "cart" + string(rune('a'+i)) + ":v" + string(rune('0'+n))
				if err := s.Write(t.Context(), digest, module("cart")); err != nil {
					t.Error(err)
				}
				if _, err := s.Name(t.Context(), name, digest, artifact.Info{}); err != nil {
					t.Error(err)
				}
				if _, err := s.Read(t.Context(), digest); err != nil {
					t.Error(err)
				}
				if _, err := s.Collect(t.Context(), nil, time.Hour); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if names, err := open(t, dir, nil).Names(t.Context()); err != nil || len(names) != 80 {
		t.Errorf("%d names, %v", len(names), err)
	}
}

// A client that never stops sending ends with its request.
func TestSaveEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := open(t, t.TempDir(), nil).Save(ctx, artifact.Digest(nil), rand.Reader); !errors.Is(err, context.Canceled) {
		t.Errorf("it does not end: %v", err)
	}
}

// A store has the files of a shared folder, and changes nothing there.
func TestShared(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	owner, err := artifact.Open(artifact.Options{Dir: filepath.Join(dir, "owner")})
	if err != nil {
		t.Fatal(err)
	}
	s, err := artifact.Open(artifact.Options{Dir: filepath.Join(dir, "own"), Shared: filepath.Join(dir, "owner")})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := owner.Put(ctx, []byte("module"))
	if err != nil {
		t.Fatal(err)
	}
	content, err := s.Read(ctx, digest)
	has, hasErr := s.Has(digest)
	size, sizeErr := s.Size(digest)
	if err != nil || string(content) != "module" || !has || hasErr != nil || size != 6 || sizeErr != nil {
		t.Errorf("got %q, %v, has %v, %v, size %d, %v", content, err, has, hasErr, size, sizeErr)
	}
	if _, err := s.Collect(ctx, nil, 0); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "owner", "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
	if err := os.WriteFile(path, []byte("corrupt"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(ctx, digest); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("a corrupt file: got %v, want NotFound", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the owner's file: %v", err)
	}
	if _, err := s.Read(ctx, "sha256:../../key"); err == nil {
		t.Error("a digest that is none was read")
	}
}

// TestEnsure fetches a file once, and nothing that differs from its digest.
func TestEnsure(t *testing.T) {
	right, wrong, gone := artifact.Digest([]byte("right")), artifact.Digest([]byte("wrong")), artifact.Digest([]byte("gone"))
	n := &nodes{content: map[string][]byte{right: []byte("right"), wrong: []byte("other")}}
	s := open(t, t.TempDir(), n)
	for range 2 {
		if err := s.Ensure(t.Context(), right); err != nil {
			t.Fatal(err)
		}
	}
	for digest, want := range map[string]outboard.Kind{wrong: outboard.Unreachable, gone: outboard.NotFound} {
		if err := s.Ensure(t.Context(), digest); outboard.KindOf(err) != want {
			t.Errorf("Ensure(%s) = %v, want an error of kind %v", digest, err, want)
		}
		if has, err := s.Has(digest); has || err != nil {
			t.Errorf("Has(%s) = %v, %v", digest, has, err)
		}
	}
	if len(n.asked) != 3 {
		t.Errorf("asked for %v, want each digest once", n.asked)
	}
	if err := open(t, t.TempDir(), nil).Ensure(t.Context(), right); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("Ensure without a source = %v, want an error of kind %v", err, outboard.NotFound)
	}
}

// TestLink: Link copies nothing, and Verify deletes what does not have its digest.
func TestLink(t *testing.T) {
	dir := t.TempDir()
	s := open(t, filepath.Join(dir, "store"), nil)
	digest := put(t, s, []byte("weights"))
	at := filepath.Join(dir, "model.gguf")
	if err := s.Link(digest, at); err != nil {
		t.Fatal(err)
	}
	linked, err := os.Stat(at)
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.Stat(blobOf(filepath.Join(dir, "store"), digest))
	if err != nil || !os.SameFile(linked, own) || linked.Mode().Perm() != 0o444 {
		t.Errorf("the link has mode %v, the same file: %v, %v", linked.Mode(), os.SameFile(linked, own), err)
	}
	f, err := artifact.OpenFile(s, digest)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if content, err := io.ReadAll(f); string(content) != "weights" || err != nil {
		t.Errorf("OpenFile reads %q, %v", content, err)
	}
	corrupt := put(t, s, []byte("corrupt soon"))
	if err := os.Remove(blobOf(filepath.Join(dir, "store"), corrupt)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blobOf(filepath.Join(dir, "store"), corrupt), []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first attempt deletes the file
		if err := s.Verify(t.Context(), corrupt); outboard.KindOf(err) != outboard.NotFound {
			t.Errorf("Verify of a corrupt file = %v, want an error of kind %v", err, outboard.NotFound)
		}
	}
	if err := s.Link(corrupt, filepath.Join(dir, "corrupt")); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("Link of a deleted file = %v, want an error of kind %v", err, outboard.NotFound)
	}
	if err := s.Verify(t.Context(), digest); err != nil {
		t.Errorf("Verify of an intact file = %v", err)
	}
	if _, err := artifact.OpenFile(s, corrupt); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("OpenFile of a deleted file = %v", err)
	}
	for name, err := range map[string]error{
		"Verify":   s.Verify(t.Context(), "sha256:../../key"),
		"Link":     s.Link("sha256:../../key", at+"2"),
		"OpenFile": func() error { _, err := artifact.OpenFile(s, "sha256:../../key"); return err }(),
	} {
		if err == nil {
			t.Errorf("%s accepted a digest that is none", name)
		}
	}
}
