package llama

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

// The node unpacks what a worker loads once, into files that no worker can change.
func TestEmbeddedAreUnpackedOnce(t *testing.T) {
	files, err := Embedded()
	need.Require(t, "llama.cpp", outboard.KindOf(err) != outboard.NotFound, "make build")
	if err != nil {
		t.Fatal(err)
	}
	again, err := Embedded()
	if err != nil || !slices.Equal(files, again) {
		t.Errorf("unpacked again: %v, %v", again, err)
	}
	for _, prefix := range append(slices.Clone(core), backendPrefix) {
		if !slices.ContainsFunc(files, func(f *os.File) bool { return strings.HasPrefix(f.Name(), prefix) }) {
			t.Errorf("no file of %s*", prefix)
		}
	}
	for _, f := range files {
		if _, err := memfd.VerifyShared(f); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s can be written to: %v", f.Name(), err)
		}
		if n, err := f.WriteAt([]byte{0}, 0); !errors.Is(err, os.ErrPermission) {
			t.Errorf("%s: wrote %d bytes: %v", f.Name(), n, err)
		}
	}
}

// A library that the node passed is loaded instead of unpacking another one.
func TestPassedLibraryIsLoaded(t *testing.T) {
	_, err := Embedded()
	need.Require(t, "llama.cpp", outboard.KindOf(err) != outboard.NotFound, "make build")
	if _, err := loadEmbedded(map[string]string{"libggml-base.so": filepath.Join(t.TempDir(), "missing.so")}); err == nil {
		t.Error("loaded another library")
	}
}
