package onnx

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/shm/memfd"
)

//go:embed lib
var lib embed.FS

const (
	embedded   = "lib/libonnxruntime.so.gz"
	maxLibrary = 256 << 20 // bytes of an unpacked library
)

// digests are the SHA-256 of the embedded library, version 1.28.2, by architecture.
//
//nolint:gochecknoglobals // a table
var digests = map[string]string{
	"amd64": "4b3607aebd1784b26b6f9b20e4bd974c7ab8287043e4d095cb7d2cb40b5e566e",
	"arm64": "cfc800d4438f15e8d9017521326776ca7117d8783cb847ccccc2fc61ac4d540f",
}

// Embedded returns a sealed file of memory with the embedded library. It is unpacked once per
// process: the node passes it to all its workers, which then share the pages. The process owns
// the file; callers must not close it. The error is of kind outboard.NotFound if this program
// was built without the library.
func Embedded() (*os.File, error) { return unpackOnce() }

//nolint:gochecknoglobals // of the process, as the library is
var unpackOnce = sync.OnceValues(func() (*os.File, error) {
	packed, err := lib.ReadFile(embedded)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, outboard.Errorf(outboard.NotFound, "ONNX Runtime",
			"this build has no ONNX Runtime: use `make build`, or name a libonnxruntime.so as the model's library")
	}
	if err != nil {
		return nil, err
	}
	return unpack(packed, digests[runtime.GOARCH])
})

// unpack decompresses a library into memory and verifies its digest.
func unpack(packed []byte, digest string) (*os.File, error) {
	const op = "unpack ONNX Runtime"
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	f, err := memfd.NewImmutable("libonnxruntime.so", func(f *os.File) error {
		sum := sha256.New()
		if _, err := io.Copy(io.MultiWriter(f, sum), io.LimitReader(unpacked, maxLibrary)); err != nil {
			return err
		}
		if found := hex.EncodeToString(sum.Sum(nil)); found != digest {
			return outboard.Errorf(outboard.Invalid, "", "the embedded library has the SHA-256 %s, not %s: build this program again", found, digest)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	return f, nil
}

// libraryPath returns the path of the library to load: the user's, or that of the embedded library.
func libraryPath(named string) (string, error) {
	if named != "" {
		return named, nil
	}
	f, err := Embedded()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("/proc/self/fd/%d", f.Fd()), nil
}
