// Package driver contains the OpenCL driver library that programs load.
//
// `go build` does not make the library: `make build` compiles it and writes it, compressed, to the
// folder lib before the Go program is linked. A program built without it can do everything but run
// OpenCL programs.
package driver

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

//go:embed lib
var lib embed.FS

// Name is the library's file name; it is embedded as lib/Name.gz.
const Name = "libopencl.so"

const op = "driver library"

// Extract writes the library below dir, unless it is there already, and returns the folder for
// OCL_ICD_VENDORS, which names this library and no other. Each build of the library has a folder of
// its own, so that running programs keep theirs.
func Extract(dir string) (vendors string, err error) {
	packed, err := lib.ReadFile("lib/" + Name + ".gz")
	if errors.Is(err, fs.ErrNotExist) {
		return "", outboard.Errorf(outboard.NotFound, op, "this program was built without it: use `make build`")
	}
	if err != nil {
		return "", &outboard.Error{Op: op, Err: err}
	}
	return extract(packed, dir)
}

func extract(packed []byte, dir string) (vendors string, err error) {
	sum := sha256.Sum256(packed)
	// The loaders concatenate the names of the folder and of the library and do not handle relative
	// paths.
	home, err := filepath.Abs(filepath.Join(dir, hex.EncodeToString(sum[:8])))
	if err != nil {
		return "", &outboard.Error{Op: op, Err: err}
	}
	vendors = filepath.Join(home, "vendors")
	if _, err := os.Stat(filepath.Join(vendors, "outboard.icd")); err != nil {
		if err := install(packed, home); err != nil {
			return "", &outboard.Error{Op: op, Err: err}
		}
	}
	return vendors, checkLoadable(home)
}

// checkLoadable returns an error if programs cannot load a library from a folder: they would see no
// device, and no reason.
func checkLoadable(folder string) error {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return &outboard.Error{Op: op, Err: &fs.PathError{Op: "statfs", Path: folder, Err: err}}
	}
	if s.Flags&unix.ST_NOEXEC != 0 {
		return outboard.Errorf(outboard.Invalid, op,
			"programs cannot load it from %s, which is mounted noexec: remount it with exec, or name another folder with --data of `outboard up`", folder)
	}
	return nil
}

// install creates the folder under a temporary name first, so that it appears complete.
func install(packed []byte, home string) error {
	if err := os.MkdirAll(filepath.Dir(home), 0o755); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(filepath.Dir(home), "draft-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	if err := fill(packed, draft, home); err != nil {
		return err
	}
	err = os.Rename(draft, home)
	if errors.Is(err, fs.ErrExist) {
		return nil // another process has installed it
	}
	return err
}

// fill writes the contents of home to the folder draft.
func fill(packed []byte, draft, home string) error {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	library, err := io.ReadAll(unpacked)
	if err != nil {
		return err
	}
	if err := os.Chmod(draft, 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(draft, "vendors"), 0o755); err != nil {
		return err
	}
	if err := write(filepath.Join(draft, Name), library, 0o755); err != nil {
		return err
	}
	name := filepath.Join(home, Name) + "\n"
	return write(filepath.Join(draft, "vendors", "outboard.icd"), []byte(name), 0o644)
}

// write creates a file and syncs it to the disk.
func write(path string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}
