package job

import (
	"archive/tar"
	"bytes"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

// An archive of a few names, each of very many folders, is refused before any of them is created.
func TestFoldersOfAnArchiveAreBounded(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for i := range 3 {
		name := strconv.Itoa(i) + strings.Repeat("/x", maxElements)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o700, Format: tar.FormatPAX}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := unpack(archive.Bytes(), t.TempDir()); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("%.200v", err)
	}
}
