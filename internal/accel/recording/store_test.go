package recording

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestStore(t *testing.T) {
	dir := t.TempDir()
	s := Store{Dir: filepath.Join(dir, "traces")}
	if _, err := s.Path("ab"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty store has a trace: %v", err)
	}
	file := filepath.Join(dir, "out.trace")
	if err := os.WriteFile(file, []byte("trace"), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range maxKept + 5 {
		if err := s.Put(fmt.Sprintf("%04x", i), file); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(s.Dir)
	if err != nil || len(entries) != maxKept {
		t.Errorf("%d traces are kept, want %d (%v)", len(entries), maxKept, err)
	}
	path, err := s.Path(fmt.Sprintf("%04x", maxKept+4))
	if text, _ := os.ReadFile(path); err != nil || string(text) != "trace" {
		t.Errorf("the last trace is %q, %v", text, err)
	}
}
