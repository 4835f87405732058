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
	"slices"
	"strings"
	"sync"

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

// openArchive returns the archive of the libraries that are embedded in this program.
func openArchive() (*zip.Reader, error) {
	packed, err := lib.ReadFile(embedded)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, outboard.Errorf(outboard.NotFound, "llama.cpp",
			"this build has no llama.cpp: use `make build` on linux/amd64, or name a libllama.so as the model's library")
	}
	if err != nil {
		return nil, err
	}
	archive, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		return nil, fmt.Errorf("unpack llama.cpp: %w", err)
	}
	return archive, nil
}

// core are the prefixes of the libraries that every process loads, in the order of their loading:
// the barrier of cmd/libbarrier, which replaces ggml's, comes before the backend that calls it.
//
//nolint:gochecknoglobals // a table
var core = []string{"libbarrier.", "libggml-base", "libggml.", "libllama."}

// Embedded returns sealed files of memory with the libraries that a worker on this machine loads,
// named as in the archive: the common libraries, and the backend that suits the processor best.
// They are unpacked once per process: the node passes them to all its workers, which then share the
// pages. The process owns the files; callers must not close them. Their checksums are verified. The
// error is of kind outboard.NotFound if this program was built without the libraries.
func Embedded() ([]*os.File, error) { return embeddedOnce() }

//nolint:gochecknoglobals // of the process, as the libraries are
var embeddedOnce = sync.OnceValues(func() ([]*os.File, error) {
	archive, err := openArchive()
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for _, prefix := range append(slices.Clip(core), backendPrefix+variants()[0]+".") {
		f, err := unpack(archive, prefix)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
})

// loadEmbedded loads the embedded libraries from sealed memory, and the variant of the processor's
// backend that suits this processor best. It unpacks the libraries of which passed has no path.
func loadEmbedded(passed map[string]string) (uintptr, error) {
	archive, err := openArchive()
	if err != nil {
		return 0, err
	}
	var handle uintptr
	for _, prefix := range core {
		path, err := libraryPath(archive, passed, prefix)
		if err != nil {
			return 0, err
		}
		// Libraries that need an earlier library find it by its SONAME, since it is loaded.
		if handle, err = purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL); err != nil {
			return 0, fmt.Errorf("load llama.cpp: %w (on Debian, libstdc++6 and libgcc-s1 are needed)", err)
		}
	}
	return handle, loadVariant(archive, passed, handle)
}

// libraryPath returns the path of the library whose name begins with prefix: of a file that the
// node passed, or of a file that is unpacked now, which stays open as long as the process lives.
func libraryPath(archive *zip.Reader, passed map[string]string, prefix string) (string, error) {
	for name, path := range passed {
		if strings.HasPrefix(name, prefix) {
			return path, nil
		}
	}
	library, err := unpack(archive, prefix)
	if err != nil {
		return "", err
	}
	// No finalizer closes the duplicate, since it is not an os.File.
	fd, err := unix.FcntlInt(library.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	return fmt.Sprintf("/proc/self/fd/%d", fd), errors.Join(err, library.Close())
}

// unpack returns a sealed file of memory that holds the library whose name begins with prefix.
func unpack(archive *zip.Reader, prefix string) (*os.File, error) {
	for _, f := range archive.File {
		if !strings.HasPrefix(f.Name, prefix) {
			continue
		}
		in, err := f.Open()
		if err != nil {
			return nil, err
		}
		// Copying reads the content to its end, where the archive's checksum is compared.
		return memfd.NewImmutable(f.Name, func(out *os.File) error {
			_, err := io.Copy(out, io.LimitReader(in, maxLibrary))
			return err
		})
	}
	return nil, fmt.Errorf("the embedded archive has no %s*: run `make clean build`", prefix)
}

// backendPrefix is the common prefix of the names of the processor's backends.
const backendPrefix = "libggml-cpu-"

// variants returns the variants of the processor's backend that this processor could execute, best
// first. Each refuses a processor that lacks one of its instructions, so the first variant that
// loads is used. (llama.cpp, ggml/src/CMakeLists.txt.)
func variants() []string {
	x := &cpu.X86
	avx2 := x.HasAVX2 && x.HasFMA && x.HasBMI2
	avx512 := avx2 && x.HasAVX512F && x.HasAVX512CD && x.HasAVX512BW && x.HasAVX512DQ && x.HasAVX512VL
	vbmi, vnni, bf16 := avx512 && x.HasAVX512VBMI, avx512 && x.HasAVX512VNNI, avx512 && x.HasAVX512BF16
	var list []string
	for _, v := range []struct {
		name      string
		supported bool
	}{
		{"sapphirerapids", vbmi && vnni && bf16 && x.HasAMXTile && x.HasAMXInt8},
		{"zen4", vbmi && vnni && bf16},
		{"cooperlake", vnni && bf16},
		{"icelake", vbmi && vnni},
		{"cascadelake", vnni},
		{"cannonlake", vbmi},
		{"skylakex", avx512},
		{"alderlake", avx2 && x.HasAVXVNNI},
		{"haswell", avx2},
		{"piledriver", x.HasAVX && x.HasFMA},
		{"ivybridge", x.HasAVX},
		{"sandybridge", x.HasAVX},
		{"sse42", x.HasSSE42},
		{"x64", true},
	} {
		if v.supported {
			list = append(list, v.name)
		}
	}
	return list
}

// loadVariant loads the first backend that suits the processor.
func loadVariant(archive *zip.Reader, passed map[string]string, handle uintptr) error {
	load, err := purego.Dlsym(handle, "ggml_backend_load")
	if err != nil {
		return err
	}
	for _, name := range variants() {
		path, err := libraryPath(archive, passed, backendPrefix+name+".")
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

// supports reports whether a backend's library runs on this processor, by the library's own score.
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
		return 0, err
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
