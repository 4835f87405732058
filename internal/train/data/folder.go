package data

import (
	"cmp"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// addCount is the number of files of a folder that are added at a time. Each holds a chunk: 64 MiB
// at most.
const addCount = 16

// AddFolder adds the files below dir, which may be a link to a folder, in the order of their names.
// Empty folders are left out. progress, if not nil, is called for each file. A folder that no
// manifest can describe is refused before a file is read.
func (m *Manifest) AddFolder(ctx context.Context, chunks Chunks, dir string, progress func(name string)) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	names, err := listFiles(dir)
	if err != nil {
		return err
	}
	files, once := make([]File, len(names)), &writtenOnce{Chunks: chunks}
	group, adding := errgroup.WithContext(ctx)
	group.SetLimit(addCount)
	for i, name := range names {
		if adding.Err() != nil {
			break
		}
		if progress != nil {
			progress(name)
		}
		group.Go(func() (err error) {
			files[i], err = writeFileOf(adding, once, dir, name)
			return err
		})
	}
	if err := cmp.Or(group.Wait(), ctx.Err()); err != nil {
		return err
	}
	m.Files = append(m.Files, files...)
	return nil
}

// writtenOnce is Chunks to which equal chunks of files that are added at a time are written once.
type writtenOnce struct {
	Chunks

	begun sync.Map // digests of chunks
}

// Has implements Chunks. Its caller writes a chunk that it does not report; it reports the chunk to
// others before that write has ended.
func (w *writtenOnce) Has(ctx context.Context, digest string) (bool, error) {
	if _, begun := w.begun.LoadOrStore(digest, true); begun {
		return true, nil
	}
	return w.Chunks.Has(ctx, digest)
}

// listFiles returns the names of the files below dir.
func listFiles(dir string) (names []string, err error) {
	err = filepath.WalkDir(dir, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if !e.Type().IsRegular() {
			return errIrregular(name)
		}
		if len(names) == maxFiles {
			return outboard.Errorf(outboard.Exhausted, "read the folder", "it has more than %d files, the most that a dataset may have: pack them into archives", maxFiles)
		}
		names = append(names, name)
		return checkText(name)
	})
	return names, err
}

func errIrregular(name string) error {
	return outboard.Errorf(outboard.Invalid, "read the folder", "%s is no regular file: replace links by what they name (`cp -rL`), and remove the rest", name)
}

// writeFileOf writes a file of a folder, and returns its description.
func writeFileOf(ctx context.Context, chunks Chunks, dir, name string) (added File, err error) {
	// Opening a pipe, by which the file may have been replaced, would wait for a writer.
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return added, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return added, err
	}
	if !info.Mode().IsRegular() {
		return added, errIrregular(name)
	}
	added, failed := writeFile(ctx, chunks, filepath.ToSlash(name), info.Mode(), f)
	now, err := f.Stat()
	if err == nil && (now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime())) {
		return added, outboard.Errorf(outboard.Conflict, "read the folder", "%s changed while it was read: push the folder when no program writes to it", name)
	}
	return added, cmp.Or(failed, err)
}

// checkText refuses a name that a manifest can't have: JSON is UTF-8.
func checkText(name string) error {
	if utf8.ValidString(name) {
		return nil
	}
	return outboard.Errorf(outboard.Invalid, "read the folder", "the name of the file %q is no UTF-8: rename it", name)
}
