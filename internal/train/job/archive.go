package job

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard"
)

// MaxFiles bounds the folder of a job, in bytes.
const MaxFiles = 256 << 20

// Pack returns the files below dir, which may be a link to a folder, as a tar archive, without those
// whose names begin with a dot. The archive of the same files is always the same. A link to a file
// below dir is packed as a copy of it; other links, which may lead to what no job should get, and
// special files are skipped. Pack refuses more than MaxFiles.
func Pack(dir string) ([]byte, error) {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return nil, err
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil, outboard.Errorf(outboard.Invalid, "pack the job's files", "%s: want a folder", dir)
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	count := 0
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") || e.Name() == "__pycache__" {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if count++; count > maxFileCount {
			return outboard.Errorf(outboard.Exhausted, "pack the job's files", "%s has more than %d files: put the script into a folder of its own", dir, maxFileCount)
		}
		return packOne(w, &b, dir, path, e)
	})
	if err := errors.Join(err, w.Close()); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func packOne(w *tar.Writer, b *bytes.Buffer, dir, path string, e fs.DirEntry) error {
	name, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	if e.Type()&fs.ModeSymlink != 0 && !LeadsInto(dir, path) {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !e.IsDir() && !info.Mode().IsRegular() {
		return nil // Sockets and links to folders are not packed.
	}
	h := &tar.Header{Name: filepath.ToSlash(name), Mode: int64(info.Mode().Perm()), Typeflag: tar.TypeDir}
	if !e.IsDir() {
		h.Typeflag, h.Size = tar.TypeReg, info.Size()
	}
	if int64(b.Len())+h.Size > MaxFiles {
		return outboard.Errorf(outboard.Exhausted, "pack the job's files", "%s has more than %v: name a smaller folder with --files, and put data into a dataset", dir, outboard.Bytes(MaxFiles))
	}
	if err := w.WriteHeader(h); err != nil || e.IsDir() {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// LeadsInto reports whether a path leads to a file or folder below dir when its links are followed.
func LeadsInto(dir, path string) bool {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return false
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return false
	}
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// maxElements bounds the elements of the names in an archive: a name may have a million.
const maxElements = 10 * maxFileCount

// unpack writes the files of an archive below dir.
func unpack(archive []byte, dir string) error {
	root, err := os.OpenRoot(dir) // No name leads out of this folder.
	if err != nil {
		return err
	}
	defer root.Close()
	r, left, count, elements := tar.NewReader(bytes.NewReader(archive)), int64(maxUnpacked), 0, 0
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return outboard.Errorf(outboard.Invalid, "unpack the job's files", "%w", err)
		}
		elements += 1 + strings.Count(h.Name, "/") // each may be a folder
		if count++; count > maxFileCount || elements > maxElements || h.Size > left || h.Size < 0 {
			return outboard.Errorf(outboard.Exhausted, "unpack the job's files", "they are too many or too large")
		}
		left -= h.Size
		if err := unpackOne(root, r, h); err != nil {
			return outboard.Errorf(outboard.Invalid, "unpack the job's files", "%q: %w", h.Name, err)
		}
	}
}

func unpackOne(root *os.Root, r io.Reader, h *tar.Header) error {
	mode := fs.FileMode(h.Mode) & 0o700
	switch h.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(h.Name, mode|0o700)
	case tar.TypeReg:
		f, err := root.OpenFile(h.Name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode|0o600)
		if err != nil {
			return err
		}
		_, err = io.CopyN(f, r, h.Size)
		return errors.Join(err, f.Close())
	}
	return errors.New("neither a file nor a folder")
}
