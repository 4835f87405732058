package data

import (
	"os"
	"path/filepath"
	"testing"
)

// What a killed process has restored is removed by the next one; what a running one restores stays.
func TestRestoreRemovesAbandonedFolders(t *testing.T) {
	parent, chunks := t.TempDir(), newMemory()
	from, m := t.TempDir(), &Manifest{}
	write(t, from, map[string][]byte{"a": []byte("content")})
	if err := m.AddFolder(t.Context(), chunks, from, nil); err != nil {
		t.Fatal(err)
	}
	running, err := makeAside(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer running.Close()
	killed, err := makeAside(parent)
	if err != nil {
		t.Fatal(err)
	}
	write(t, killed.Name(), map[string][]byte{"part/a": []byte("con")})
	if err := killed.Close(); err != nil { // as the kernel does
		t.Fatal(err)
	}
	if err := m.Restore(t.Context(), chunks, filepath.Join(parent, "to")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(killed.Name()); !os.IsNotExist(err) {
		t.Errorf("the folder of a killed process: %v, want that it is removed", err)
	}
	if _, err := os.Stat(running.Name()); err != nil {
		t.Errorf("the folder of a running process: %v", err)
	}
}
