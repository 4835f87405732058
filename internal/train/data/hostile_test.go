package data

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/artifact"
)

// TestOneDigestSeveralSizes: a manifest that names one chunk with several sizes makes its reads fail,
// and not the process that reads it.
func TestOneDigestSeveralSizes(t *testing.T) {
	c := newMemory()
	content := []byte("short")
	digest := artifact.Digest(content)
	if err := c.Put(t.Context(), digest, content); err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Files: []File{
		{Name: "true", Chunks: []Chunk{{digest, int64(len(content))}}},
		{Name: "false", Chunks: []Chunk{{digest, 1000}}},
	}}
	r := NewReader(m, c)
	t.Cleanup(func() { _ = r.Close() })
	buf := make([]byte, len(content))
	for range 2 {
		if err := r.Read(t.Context(), "true", 0, buf, nil); err != nil || string(buf) != "short" {
			t.Errorf("%q, %v", buf, err)
		}
		if err := r.Read(t.Context(), "false", 500, buf, nil); err == nil || !strings.Contains(err.Error(), "1000") {
			t.Errorf("%q, %v, want the wrong size refused", buf, err)
		}
	}
}

// TestFoldersAreBounded: a manifest of a few megabytes can't require millions of folders.
func TestFoldersAreBounded(t *testing.T) {
	deep := strings.Repeat("/x", 1000)
	for name, c := range map[string]struct {
		files func(i int) string
		want  int
	}{
		"one folder":           {func(i int) string { return fmt.Sprint("a/", i) }, 1},
		"nested":               {func(i int) string { return fmt.Sprint("a/b-c/", i%2, "/", i) }, 4},
		"similar names":        {func(i int) string { return []string{"a/x", "a-b", "a0/x", "a.b/y/z"}[i%4] + fmt.Sprint(i) }, 4},
		"a chain for each":     {func(i int) string { return fmt.Sprint(i) + deep }, 1000 * 1000},
		"unclean, as one name": {func(i int) string { return "a" + strings.Repeat("/.", 100) + fmt.Sprint("/", i) }, 1},
	} {
		m := Manifest{Format: format}
		for i := range 1000 {
			m.Files = append(m.Files, File{Name: c.files(i)})
		}
		if n := m.folders(); n != c.want {
			t.Errorf("%s: %d folders, want %d", name, n, c.want)
		}
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Decode(name, text); (err != nil) != (c.want > maxFolders) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
