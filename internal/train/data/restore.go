package data

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// Restore writes the files of a manifest to dir, which must not exist: they are first written to a
// temporary folder, so that dir is complete or missing. The temporary folders of killed processes are
// removed.
func (m *Manifest) Restore(ctx context.Context, chunks Chunks, dir string) (err error) {
	dir = filepath.Clean(dir) // A name that ends with a slash has itself as its folder.
	if _, err := os.Lstat(dir); err == nil {
		return outboard.Errorf(outboard.Conflict, "restore", "%s exists already: name another folder", dir)
	}
	removeAbandoned(filepath.Dir(dir))
	if err := artifact.CheckSpace(filepath.Dir(dir), m.occupied()); err != nil {
		return err
	}
	folder, err := makeAside(filepath.Dir(dir))
	if err != nil {
		return err
	}
	defer folder.Close()
	aside := folder.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(aside))
		}
	}()
	root, err := os.OpenRoot(aside)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := restoreFiles(ctx, chunks, root, m.Files); err != nil {
		return err
	}
	if err := os.Chmod(aside, 0o755); err != nil {
		return err
	}
	return os.Rename(aside, dir)
}

// restoreFiles writes files to a folder, one after the other. It waits for the disk for several at a
// time, since these waits take most of the time of small files.
func restoreFiles(ctx context.Context, chunks Chunks, root *os.Root, files []File) error {
	chunksAhead := fetchAhead(ctx, chunks, files)
	defer chunksAhead.close()
	syncs, syncing := errgroup.WithContext(ctx)
	syncs.SetLimit(aheadCount)
	for i := range files {
		if syncing.Err() != nil {
			break
		}
		f := &files[i]
		out, err := restoreFile(chunksAhead, root, f)
		if err != nil {
			return errors.Join(restoreError(f, err), syncs.Wait())
		}
		syncs.Go(func() error { return restoreError(f, errors.Join(out.Sync(), out.Close())) })
	}
	return cmp.Or(syncs.Wait(), ctx.Err())
}

// restoreError returns an error with the name of the file that could not be restored, nil for nil.
func restoreError(f *File, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("restore %s: %w", f.Name, err)
}

// restoreFile writes a file to a folder. The caller must close it.
func restoreFile(chunks *ahead, root *os.Root, f *File) (*os.File, error) {
	name := filepath.FromSlash(f.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return nil, err
	}
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fs.FileMode(f.Mode)&0o777|0o400)
	if err != nil {
		return nil, err
	}
	for _, c := range f.Chunks {
		content, err := chunks.next()
		switch {
		case err != nil:
		case isZeros(c):
			_, err = out.Seek(c.Size, io.SeekCurrent) // a hole, which occupies no space
		default:
			_, err = out.Write(content)
		}
		if err != nil {
			return nil, errors.Join(err, out.Close())
		}
	}
	if err := out.Truncate(f.size()); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}
