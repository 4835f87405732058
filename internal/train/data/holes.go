package data

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// A program can make a file of any size that consists of holes, without writing a byte. The cost of
// such a file for others must not grow with its size: holes are neither read nor hashed, nor
// written when the file is restored.

// zeros is the chunk of a hole, with its digest.
var zeros = sync.OnceValue(func() *zeroChunk {
	content := make([]byte, chunkSize)
	return &zeroChunk{content, artifact.Digest(content)}
})

// A zeroChunk is a chunk of zeros. It is read-only.
type zeroChunk struct {
	content []byte
	digest  string
}

// isZeros reports whether a chunk is that of a hole.
func isZeros(c Chunk) bool { return c.Size == chunkSize && c.Digest == zeros().digest }

// occupied returns the bytes of all files that a disk needs space for.
func (m *Manifest) occupied() (n int64) {
	for _, f := range m.Files {
		for _, c := range f.Chunks {
			if !isZeros(c) {
				n += c.Size
			}
		}
	}
	return n
}

// AddFile writes the content of a regular file that is open, from its beginning, and adds it to the
// manifest. The position of the file changes.
func (m *Manifest) AddFile(ctx context.Context, chunks Chunks, name string, mode fs.FileMode, file *os.File) error {
	f, err := writeFile(ctx, chunks, name, mode, file)
	if err == nil {
		m.Files = append(m.Files, f)
	}
	return err
}

// writeFile writes the content of a regular file that is open, from its beginning, and returns the
// file's description.
func writeFile(ctx context.Context, chunks Chunks, name string, mode fs.FileMode, file *os.File) (f File, err error) {
	info, err := file.Stat()
	switch {
	case err != nil:
		return f, fmt.Errorf("read %s: %w", name, err)
	case !info.Mode().IsRegular():
		return f, outboard.Errorf(outboard.Invalid, "read "+name, "it is no regular file")
	case info.Size() > maxChunks*chunkSize:
		return f, errTooLarge(name)
	}
	f = File{Name: name, Mode: uint32(mode.Perm()), Chunks: []Chunk{}}
	buf := make([]byte, min(chunkSize, info.Size()))
	data := int64(0) // the offset of the next part that is no hole
	for at := int64(0); at < info.Size() && err == nil; at += chunkSize {
		if data <= at {
			data = nextData(file, at, info.Size())
		}
		n := min(chunkSize, info.Size()-at)
		if n == chunkSize && data >= at+n {
			err = f.addZeros(ctx, chunks)
		} else if _, err = file.ReadAt(buf[:n], at); err == nil {
			err = f.addChunk(ctx, chunks, buf[:n])
		}
	}
	if err != nil {
		return f, fmt.Errorf("read %s: %w", name, err)
	}
	return f, nil
}

// nextData returns the offset of the first part of a file, from at on, that is no hole: at itself
// if the file system does not report holes.
func nextData(file *os.File, at, size int64) int64 {
	data, err := file.Seek(at, unix.SEEK_DATA)
	switch {
	case err == nil:
		return data
	case errors.Is(err, unix.ENXIO):
		return size
	}
	return at
}

// addZeros adds a hole of a chunk's size. Of adjacent holes only the first one is written.
func (f *File) addZeros(ctx context.Context, chunks Chunks) error {
	z := zeros()
	c := Chunk{Digest: z.digest, Size: chunkSize}
	if n := len(f.Chunks); n > 0 && f.Chunks[n-1] == c {
		f.Chunks = append(f.Chunks, c)
		return ctx.Err()
	}
	return f.addChunk(ctx, chunks, z.content)
}
