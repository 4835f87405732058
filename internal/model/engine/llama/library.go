package llama

import (
	"archive/zip"
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/ebitengine/purego"
	"golang.org/x/sys/cpu"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

//go:embed lib
var lib embed.FS

const (
	embedded   = "lib/llama.zip"
	maxLibrary = 64 << 20 // bytes of an unpacked library
)

// loadEmbedded loads the libraries that are built into this program from sealed memory, and the
// variant of the processor's backend that suits this processor best.
func loadEmbedded() (uintptr, error) {
	packed, err := lib.ReadFile(embedded)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, outboard.Errorf(outboard.NotFound, "llama.cpp",
			"this build has no llama.cpp: use `make build` on linux/amd64, or name a libllama.so as the model's library")
	}
	if err != nil {
		return 0, err
	}
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return 0, fmt.Errorf("unpack llama.cpp: %w", err)
	}
	var handle uintptr
	for _, prefix := range []string{"libggml-base", "libggml.", "libllama."} {
		path, err := unpack(archive, prefix)
		if err != nil {
			return 0, err
		}
		// Libraries that need an earlier one find it by its SONAME, since it is loaded.
		if handle, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			return 0, fmt.Errorf("load llama.cpp: %w (on Debian, libstdc++6 and libgcc-s1 are needed)", err)
		}
	}
	return handle, loadVariant(archive, handle)
}

// unpack returns the path of a file of memory that holds the library whose name begins with
// prefix. The file stays open as long as the process lives: the path names its descriptor.
func unpack(archive *zip.Reader, prefix string) (string, error) {
	for _, f := range archive.File {
		if !strings.HasPrefix(f.Name, prefix) {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return "", err
		}
		library, err := memfd.NewImmutable(f.Name, func(out *os.File) error {
			_, err := io.Copy(out, io.LimitReader(in, maxLibrary))
			return err
		})
		if err != nil {
			return "", err
		}
		// No finalizer closes a duplicate that is not an os.File.
		fd, err := unix.FcntlInt(library.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		return fmt.Sprintf("/proc/self/fd/%d", fd), errors.Join(err, library.Close())
	}
	return "", fmt.Errorf("the embedded archive has no %s*: run `make clean build`", prefix)
}

// Variants of the processor's backend, best first. Each refuses a processor that lacks one of
// its instructions, so the first one that loads is taken.
var (
	variantsAVX512 = []string{"sapphirerapids", "zen4", "cooperlake", "icelake", "cascadelake", "cannonlake", "skylakex"}
	variantsAVX2   = []string{"alderlake", "haswell"}
	variantsOlder  = []string{"piledriver", "ivybridge", "sandybridge", "sse42", "x64"}
)

func variants() []string {
	list := variantsOlder
	if cpu.X86.HasAVX2 {
		list = append(append([]string(nil), variantsAVX2...), list...)
	}
	if cpu.X86.HasAVX512F {
		list = append(append([]string(nil), variantsAVX512...), list...)
	}
	return list
}

// loadVariant loads the first backend that suits the processor.
func loadVariant(archive *zip.Reader, handle uintptr) error {
	load, err := purego.Dlsym(handle, "ggml_backend_load")
	if err != nil {
		return err
	}
	for _, name := range variants() {
		path, err := unpack(archive, "libggml-cpu-"+name+".so")
		if err != nil {
			return err
		}
		if !supports(path) {
			continue
		}
		file := newCString(path)
		r, _, _ := purego.SyscallN(load, file.address())
		file.free()
		if r != 0 {
			return nil
		}
	}
	return outboard.Errorf(outboard.NoDevice, "llama.cpp", "none of its builds runs on this processor")
}

// supports reports whether a backend's library runs on this processor, by its own judgement.
func supports(path string) bool {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return false
	}
	score, err := purego.Dlsym(handle, "ggml_backend_score")
	if err != nil {
		return true
	}
	r, _, _ := purego.SyscallN(score)
	return int32(r) > 0
}

// loadFile loads a user's own build, with the backends in its folder.
func loadFile(path string) (uintptr, error) {
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return 0, outboard.Errorf(outboard.NotFound, "load llama.cpp", "%w", err)
	}
	if load, err := purego.Dlsym(handle, "ggml_backend_load_all_from_path"); err == nil {
		folder := newCString(filepath.Dir(path))
		purego.SyscallN(load, folder.address())
		folder.free()
	}
	return handle, nil
}

// newCString returns s in C's form, pinned until it is freed.
func newCString(s string) *pinned[byte] { return pin(append([]byte(s), 0)) }

// librarySupported reports whether this system passes structs by value as this package does.
func librarySupported() error {
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		return fmt.Errorf("llama.cpp is loaded through /proc/self/fd: %w", err)
	}
	return nil
}
