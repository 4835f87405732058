package deptest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDocuments(t *testing.T) {
	const root = "../.."
	var documents []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/design/*.md", "fabric/*.md", "examples/*/README.md", "changelog/unreleased/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: got %d documents (%v)", pattern, len(found), err)
		}
		documents = append(documents, found...)
	}
	for _, document := range documents {
		wrong, err := CheckDocument(root, strings.TrimPrefix(document, root+"/"))
		if err != nil {
			t.Error(err)
		}
		for _, line := range wrong {
			t.Error(line)
		}
	}
}

func TestCheckDocument(t *testing.T) {
	root := t.TempDir()
	long := strings.Repeat("word ", 21)
	text := "# Title\n" + long + "\n" + strings.Repeat("x", 120) + "\n| " + long + "|\n```\n" + long + "\n```\n" +
		"`internal/gone` and `internal/here`\n"
	if err := os.MkdirAll(filepath.Join(root, "internal", "here"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "a.md"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := CheckDocument(root, "a.md")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"a.md:2: 105 columns, at most 100", "a.md:8: there is no internal/gone"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
