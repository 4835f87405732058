package driver

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

func pack(t *testing.T, content string) []byte {
	t.Helper()
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return packed.Bytes()
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestExtract(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "driver")
	vendors, err := extract(pack(t, "library"), dir)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(vendors)
	if err != nil || len(entries) != 1 {
		t.Fatalf("got %v, %v, want one file in the vendors' folder", entries, err)
	}
	library := strings.TrimSuffix(read(t, filepath.Join(vendors, "outboard.icd")), "\n")
	if !filepath.IsAbs(library) {
		t.Errorf("got library %q, want an absolute path", library)
	}
	if diff := cmp.Diff("library", read(t, library)); diff != "" {
		t.Error(diff)
	}
	info, err := os.Stat(library)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("got mode %v, %v, want 0755", info.Mode(), err)
	}
	again, err := extract(pack(t, "library"), dir)
	if err != nil || again != vendors {
		t.Errorf("second time: got %q, %v, want %q", again, err, vendors)
	}
	other, err := extract(pack(t, "another library"), dir)
	if err != nil || other == vendors {
		t.Errorf("another build: got %q, %v, want another folder", other, err)
	}
}

func TestExtractAtOnce(t *testing.T) {
	dir, packed := t.TempDir(), pack(t, strings.Repeat("library", 1<<16))
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			vendors, err := extract(packed, dir)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := os.Stat(filepath.Join(vendors, "outboard.icd")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want one folder and no drafts", entries, err)
	}
}

func TestExtractSaysHowToBuild(t *testing.T) {
	if _, err := lib.ReadFile("lib/" + Name + ".gz"); err == nil {
		t.Log("built with the library")
		return
	}
	_, err := Extract(t.TempDir())
	if outboard.KindOf(err) != outboard.NotFound || !strings.Contains(err.Error(), "make build") {
		t.Errorf("got %v, want NotFound with advice", err)
	}
}

// A folder from which programs cannot load libraries is refused: they would see no device.
func TestFolderWithoutExec(t *testing.T) {
	const folder = "/proc" // mounted noexec by every init
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil || s.Flags&unix.ST_NOEXEC == 0 {
		t.Skipf("%s is not mounted noexec here (%v)", folder, err)
	}
	if err := checkLoadable(folder); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("the error is %v", err)
	}
	if err := checkLoadable(t.TempDir()); err != nil {
		t.Error(err)
	}
}
