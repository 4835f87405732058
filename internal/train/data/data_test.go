package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/artifact"
)

// memory is Chunks that fail after some operations, as a process that is killed.
type memory struct {
	mu     sync.Mutex
	chunks map[string][]byte
	left   int // operations until the failure; -1: none
	puts   int
}

var errKilled = errors.New("killed")

func (m *memory) step() error {
	if m.left == 0 {
		return errKilled
	}
	m.left--
	return nil
}

func (m *memory) Has(_ context.Context, digest string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.chunks[digest]
	return ok, m.step()
}

func (m *memory) Put(ctx context.Context, digest string, content []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := errors.Join(ctx.Err(), m.step()); err != nil {
		return err
	}
	m.puts++
	m.chunks[digest] = bytes.Clone(content)
	return nil
}

func (m *memory) Get(_ context.Context, digest string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.step(); err != nil {
		return nil, err
	}
	c, ok := m.chunks[digest]
	if !ok {
		return nil, fs.ErrNotExist
	}
	if artifact.Digest(c) != digest {
		return nil, errors.New("corrupt")
	}
	return c, nil
}

func newMemory() *memory { return &memory{chunks: map[string][]byte{}, left: -1} }

func write(t *testing.T, dir string, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func read(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func put(ctx context.Context, c Chunks, dir string) (string, error) {
	var m Manifest
	if err := m.AddFolder(ctx, c, dir, nil); err != nil {
		return "", err
	}
	return Save(ctx, c, &m)
}

func TestFolderComesBack(t *testing.T) {
	from, to, c := t.TempDir(), filepath.Join(t.TempDir(), "to"), newMemory()
	big := bytes.Repeat([]byte("0123456789abcdef"), chunkSize/16+100)
	write(t, from, map[string][]byte{"a.txt": []byte("a"), "empty": nil, "sub/big": big, "sub/same": big})
	digest, err := put(t.Context(), c, from)
	if err != nil {
		t.Fatal(err)
	}
	// a.txt, two chunks of big, of which same has none of its own, and the manifest.
	if c.puts != 4 {
		t.Errorf("%d chunks were written, want 4: equal ones once", c.puts)
	}
	m, err := Load(t.Context(), c, digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(t.Context(), c, to); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(read(t, to), read(t, from)) {
		t.Error("the folder that came back differs")
	}
	if err := m.Restore(t.Context(), c, to); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("%v, want that the folder exists", err)
	}
}

// A kill at any point of writing a new version leaves the old one whole; one at any point of
// restoring leaves no folder.
func TestKilledAtAnyPoint(t *testing.T) {
	ctx := t.Context()
	old, next, c := t.TempDir(), t.TempDir(), newMemory()
	write(t, old, map[string][]byte{"model": []byte("old"), "step": []byte("1")})
	write(t, next, map[string][]byte{"model": []byte("new"), "step": []byte("2"), "more": []byte("x")})
	last, err := put(ctx, c, old)
	if err != nil {
		t.Fatal(err)
	}
	saved := false
	for kill := 0; !saved; kill++ {
		c.left = kill
		digest, err := put(ctx, c, next)
		saved = err == nil
		c.left = -1
		if saved {
			last = digest // The record changes only then.
		}
		m, err := Load(ctx, c, last)
		if err != nil {
			t.Fatalf("killed after %d operations: %v", kill, err)
		}
		to := filepath.Join(t.TempDir(), "to")
		if err := m.Restore(ctx, c, to); err != nil {
			t.Fatalf("killed after %d operations: %v", kill, err)
		}
		if got := read(t, to)["model"]; got != map[bool]string{false: "old", true: "new"}[saved] {
			t.Errorf("killed after %d operations: model is %q", kill, got)
		}
	}
	m, err := Load(ctx, c, last)
	if err != nil {
		t.Fatal(err)
	}
	for kill := range 3 {
		c.left = kill
		parent := t.TempDir()
		if err := m.Restore(ctx, c, filepath.Join(parent, "to")); !errors.Is(err, errKilled) {
			t.Errorf("%v, want that it was killed", err)
		}
		if left := read(t, parent); len(left) > 0 {
			t.Errorf("killed after %d operations, restoring left %v", kill, left)
		}
	}
}

func TestTruncatedAndForeign(t *testing.T) {
	ctx, c := t.Context(), newMemory()
	dir := t.TempDir()
	write(t, dir, map[string][]byte{"model": []byte("content")})
	digest, err := put(ctx, c, dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(ctx, c, digest)
	if err != nil {
		t.Fatal(err)
	}
	chunk := m.Files[0].Chunks[0].Digest
	c.chunks[chunk] = c.chunks[chunk][:3]
	if err := m.Restore(ctx, c, filepath.Join(t.TempDir(), "to")); err == nil || !strings.Contains(err.Error(), "model") {
		t.Errorf("%v, want the truncated file named", err)
	}
	for name, text := range map[string]string{
		"foreign": `PK\x03\x04`, "another format": `{"format":"other","files":[]}`, "cut short": `{"format":"outboard-data/1","files":[`,
		"long name": `{"format":"outboard-data/1","files":[{"name":"` + strings.Repeat("x", 5000) + `"}]}`,
		"leads out": `{"format":"outboard-data/1","files":[{"name":"../x"}]}`,
	} {
		if _, err := Decode("checkpoint 7", []byte(text)); err == nil || !strings.Contains(err.Error(), "checkpoint 7") {
			t.Errorf("%s: %v, want it refused by name", name, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	text, err := json.Marshal(Manifest{Format: format, Files: []File{{Name: "a/b", Chunks: []Chunk{{Digest: artifact.Digest(nil), Size: 1}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text []byte) {
		m, err := Decode("x", text)
		if err != nil {
			return
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(filepath.FromSlash(file.Name)) {
				t.Errorf("accepted %q", file.Name)
			}
		}
	})
}

// A folder may be named by a link to it, and the folder of a copy with a slash at its end.
func TestFolderByALink(t *testing.T) {
	from, c := t.TempDir(), newMemory()
	write(t, from, map[string][]byte{"a": []byte("x")})
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(from, link); err != nil {
		t.Fatal(err)
	}
	digest, err := put(t.Context(), c, link)
	if err != nil {
		t.Fatal(err)
	}
	m, err := Load(t.Context(), c, digest)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "to")
	if err := m.Restore(t.Context(), c, to+string(filepath.Separator)); err != nil {
		t.Fatal(err)
	}
	if got := read(t, to); !maps.Equal(got, map[string]string{"a": "x"}) {
		t.Errorf("got %v", got)
	}
}

// JSON has no bytes that are not UTF-8: a file whose name has some would come back under another
// name, which another file may have.
func TestNamesThatAreNotUTF8(t *testing.T) {
	from := t.TempDir()
	write(t, from, map[string][]byte{"a\xff": []byte("x")})
	if _, err := put(t.Context(), newMemory(), from); err == nil || !strings.Contains(err.Error(), `"a\xff"`) {
		t.Errorf("%v, want that the name is refused", err)
	}
}

// A folder that no manifest can describe is refused before anything is stored, however late the walk
// finds it.
func TestFoldersAreRefusedBeforeTheyAreRead(t *testing.T) {
	for want, add := range map[string]func(dir string) error{
		"z is no regular file": func(dir string) error { return os.Symlink("a", filepath.Join(dir, "z")) },
		"no UTF-8":             func(dir string) error { return os.WriteFile(dir+"/z\xff", nil, 0o600) },
	} {
		dir, chunks := t.TempDir(), newMemory()
		write(t, dir, map[string][]byte{"a": []byte("content")})
		if err := add(dir); err != nil {
			t.Fatal(err)
		}
		var m Manifest
		if err := m.AddFolder(t.Context(), chunks, dir, nil); err == nil || !strings.Contains(err.Error(), want) || chunks.puts > 0 {
			t.Errorf("%v after %d chunks, want %q before any", err, chunks.puts, want)
		}
	}
}

// A file that is replaced by a pipe while the folder is read is refused: it has no writer.
func TestFilesThatBecomePipes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string][]byte{"a": []byte("content")})
	var m Manifest
	err := m.AddFolder(t.Context(), newMemory(), dir, func(name string) {
		if err := errors.Join(os.Remove(filepath.Join(dir, name)), unix.Mkfifo(filepath.Join(dir, name), 0o600)); err != nil {
			t.Fatal(err)
		}
	})
	if err == nil || !strings.Contains(err.Error(), "a is no regular file") {
		t.Errorf("%v, want that it is no regular file", err)
	}
}

// A file that changes while it is read is refused: the dataset would have a part of each version.
func TestFilesThatChange(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string][]byte{"a": []byte("content")})
	chunks := &changing{memory: newMemory(), change: func() {
		write(t, dir, map[string][]byte{"a": []byte("other content")})
	}}
	var m Manifest
	if err := m.AddFolder(t.Context(), chunks, dir, nil); err == nil || !strings.Contains(err.Error(), "a changed while it was read") {
		t.Errorf("%v, want that the file changed", err)
	}
}

// changing is memory that changes something at each write.
type changing struct {
	*memory
	change func()
}

func (c *changing) Put(ctx context.Context, digest string, content []byte) error {
	c.change()
	return c.memory.Put(ctx, digest, content)
}
