package data

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outboard-run/outboard"
)

// sparseFile returns a file of a size that has content at its beginning and at an offset only.
func sparseFile(t *testing.T, size int64, content []byte, at int64) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for _, err := range []error{f.Truncate(size), writeAt(f, content, 0), writeAt(f, content, at)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func writeAt(f *os.File, content []byte, at int64) error {
	_, err := f.WriteAt(content, at)
	return err
}

// A file of holes is kept, and comes back, without the work and the space that its size suggests.
func TestHoles(t *testing.T) {
	const size, at = 64<<30 + 5, 33<<30 + 7
	f, c, content := sparseFile(t, size, []byte("content"), at), newMemory(), []byte("content")
	var m Manifest
	if err := m.AddFile(t.Context(), c, "state", 0o600, f); err != nil {
		t.Fatal(err)
	}
	// Both parts that have content, the zeros, and the end.
	if m.Size() != size || c.puts != 4 {
		t.Errorf("%v in %d chunks that were written, want 4", m.Size(), c.puts)
	}
	if m.occupied() > 4*chunkSize {
		t.Errorf("it occupies %d bytes", m.occupied())
	}
	to := filepath.Join(t.TempDir(), "to")
	if err := m.Restore(t.Context(), c, to); err != nil {
		t.Fatal(err)
	}
	back, err := os.Open(filepath.Join(to, "state"))
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	for _, from := range []int64{0, at} {
		got := make([]byte, len(content)+1)
		if _, err := back.ReadAt(got, from); err != nil || !bytes.Equal(got, append(bytes.Clone(content), 0)) {
			t.Errorf("from byte %d: %q, %v", from, got, err)
		}
	}
	info, err := back.Stat()
	if err != nil || info.Size() != size {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	if blocks := info.Sys().(*syscall.Stat_t).Blocks; blocks*512 > 8*chunkSize {
		t.Errorf("%d bytes of the disk", blocks*512)
	}
}

func TestOpenFilesThatAreRefused(t *testing.T) {
	large := sparseFile(t, 0, nil, 0)
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := large.Truncate(maxChunks*chunkSize + 1); err != nil {
		t.Fatal(err)
	}
	for name, try := range map[string]struct {
		ended bool
		file  *os.File
		want  string
	}{
		"too large":   {false, large, "more than"},
		"a folder":    {false, dir, "no regular file"},
		"a job ended": {true, sparseFile(t, 1<<30, nil, 0), "canceled"},
	} {
		var m Manifest
		ctx, cancel := context.WithCancel(t.Context())
		if try.ended {
			cancel()
		}
		if err := m.AddFile(ctx, newMemory(), "state", 0, try.file); err == nil || !strings.Contains(err.Error(), try.want) {
			t.Errorf("%s: %v, want %q", name, err, try.want)
		}
		cancel()
	}
}

// Files that the disk has no space for are refused before one is written.
func TestRestoreChecksTheSpace(t *testing.T) {
	m := &Manifest{Files: []File{{Name: "a", Chunks: []Chunk{{Digest: "sha256:" + strings.Repeat("0", 64), Size: 1 << 60}}}}}
	to := filepath.Join(t.TempDir(), "to")
	err := m.Restore(t.Context(), newMemory(), to)
	if outboard.KindOf(err) != outboard.Exhausted || !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "1024PiB are needed") {
		t.Errorf("%v, want that the disk has no space for it", err)
	}
	if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// The holes of a file in a folder are not read either.
func TestHolesOfAFolder(t *testing.T) {
	dir, c := t.TempDir(), newMemory()
	if err := os.WriteFile(filepath.Join(dir, "sparse"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(dir, "sparse"), 256*chunkSize); err != nil {
		t.Fatal(err)
	}
	c.left = 4 // operations of the store: one chunk of zeros
	var m Manifest
	if err := m.AddFolder(t.Context(), c, dir, nil); err != nil || m.Size() != 256*chunkSize {
		t.Errorf("%v, %d bytes", err, m.Size())
	}
}
