// Package data keeps datasets and checkpoints as chunks that are named by the digests of their
// content.
//
// A manifest lists the files of a folder and the chunks of each. It is a chunk itself and is
// written last: a folder that has a manifest is complete. Chunks that two manifests share are
// stored once.
package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"golang.org/x/sync/errgroup"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// Chunks is a store of chunks. Any number of goroutines may use it.
type Chunks interface {
	Has(ctx context.Context, digest string) (bool, error)
	Put(ctx context.Context, digest string, content []byte) error
	// Get returns a chunk, verified.
	Get(ctx context.Context, digest string) ([]byte, error)
}

const (
	// format names the format of a manifest.
	format    = "outboard-data/1"
	chunkSize = 4 << 20
	// maxManifest bounds a manifest, maxSize the files that it describes, in bytes.
	maxManifest = 16 << 20
	maxFiles    = 100_000
	maxFolders  = 100_000
	maxName     = 4096 // bytes of a file's name: PATH_MAX
	maxSize     = 1 << 42
	// maxChunks is the number of chunks for which a manifest has space: 100 bytes each.
	maxChunks = maxManifest / 100
)

var datasetName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// CheckName returns an error unless name may be that of a dataset.
func CheckName(name string) error {
	if datasetName.MatchString(name) {
		return nil
	}
	return outboard.Errorf(outboard.Invalid, "", "%.70q is no name of a dataset: use lower-case letters, digits and -", name)
}

// A Manifest describes a folder.
type Manifest struct {
	Format string `json:"format"`
	Files  []File `json:"files"`
}

// A File is one file of a folder.
type File struct {
	// Name is relative to the folder, with slashes.
	Name   string  `json:"name"`
	Mode   uint32  `json:"mode"`
	Chunks []Chunk `json:"chunks"`
}

// A Chunk is a part of a file.
type Chunk struct {
	Digest string `json:"digest"`
	Size   int64  `json:"size"`
}

// Size returns the bytes of all files.
func (m *Manifest) Size() (n int64) {
	for _, f := range m.Files {
		n += f.size()
	}
	return n
}

// Digests adds the digests of all chunks to a set.
func (m *Manifest) Digests(to map[string]bool) {
	for _, f := range m.Files {
		for _, c := range f.Chunks {
			to[c.Digest] = true
		}
	}
}

// Decode reads a manifest and checks it. name is the name by which it was requested, for errors.
func Decode(name string, text []byte) (*Manifest, error) {
	refuse := func(format string, args ...any) (*Manifest, error) {
		return nil, outboard.Errorf(outboard.Invalid, name, format, args...)
	}
	var m Manifest
	if len(text) > maxManifest {
		return refuse("a manifest of %d bytes: want %d at most", len(text), maxManifest)
	}
	if err := json.Unmarshal(text, &m); err != nil || m.Format != format {
		return refuse("it is no dataset and no checkpoint of Outboard")
	}
	if len(m.Files) > maxFiles {
		return refuse("it has %d files: want %d at most", len(m.Files), maxFiles)
	}
	total := int64(0)
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Name)) || f.Name == "." || len(f.Name) > maxName {
			return refuse("%.100q is no name of a file in a folder", f.Name)
		}
		for _, c := range f.Chunks {
			if c.Size < 1 || c.Size > chunkSize || artifact.CheckDigest(c.Digest) != nil {
				return refuse("%.100q has a malformed chunk", f.Name)
			}
			if total += c.Size; total > maxSize {
				return refuse("it has more than %v", outboard.Bytes(maxSize))
			}
		}
	}
	if n := m.folders(); n > maxFolders {
		return refuse("its files are in %d folders: want %d at most", n, maxFolders)
	}
	return &m, nil
}

// folders returns the number of folders below the manifest's that have files or folders.
func (m *Manifest) folders() (n int) {
	names := make([]string, len(m.Files))
	for i, f := range m.Files {
		names[i] = path.Clean(f.Name)
	}
	slices.Sort(names) // so the files of a folder, at any depth, follow each other
	before := ""
	for _, name := range names {
		common := 0 // the length of the folders that both names have
		for i := range min(len(name), len(before)) {
			if name[i] != before[i] {
				break
			}
			if name[i] == '/' {
				common = i + 1
			}
		}
		n += strings.Count(name[common:], "/")
		before = name
	}
	return n
}

// Load reads the manifest with a digest.
func Load(ctx context.Context, chunks Chunks, digest string) (*Manifest, error) {
	text, err := chunks.Get(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	return Decode(digest, text)
}

// Save writes a manifest, and returns its digest. All of its chunks must be stored.
func Save(ctx context.Context, chunks Chunks, m *Manifest) (string, error) {
	m.Format = format
	text, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	digest := artifact.Digest(text)
	if _, err := Decode(digest, text); err != nil {
		return "", err
	}
	if err := chunks.Put(ctx, digest, text); err != nil {
		return "", err
	}
	return digest, confirm(ctx, chunks, m, digest)
}

// addChunk writes the next part of the file.
func (f *File) addChunk(ctx context.Context, chunks Chunks, content []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(f.Chunks) == maxChunks {
		return errTooLarge(f.Name)
	}
	c := Chunk{Digest: artifact.Digest(content), Size: int64(len(content))}
	f.Chunks = append(f.Chunks, c)
	return putOnce(ctx, chunks, c.Digest, content)
}

func errTooLarge(name string) error {
	return outboard.Errorf(outboard.Exhausted, "read "+name, "it has more than %v, the most that a dataset or a checkpoint may have", outboard.Bytes(maxChunks*chunkSize))
}

// putOnce writes a chunk unless it is stored.
func putOnce(ctx context.Context, chunks Chunks, digest string, content []byte) error {
	if has, err := chunks.Has(ctx, digest); has || err != nil {
		return err
	}
	return chunks.Put(ctx, digest, content)
}

// Copy writes into chunks all chunks of a manifest, and then the manifest itself, that are only
// near the caller or on another node.
func Copy(ctx context.Context, chunks Chunks, digest string) (*Manifest, error) {
	text, err := chunks.Get(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("read the manifest: %w", err)
	}
	m, err := Decode(digest, text)
	if err != nil {
		return nil, err
	}
	digests := map[string]bool{} // A manifest may name one chunk any number of times.
	m.Digests(digests)
	if _, err := copyChunks(ctx, chunks, digests); err != nil {
		return nil, err
	}
	if err := putOnce(ctx, chunks, digest, text); err != nil {
		return nil, err
	}
	return m, confirm(ctx, chunks, m, digest)
}

// copyChunks writes the chunks that can be read but are not stored, and returns their number.
func copyChunks(ctx context.Context, chunks Chunks, digests map[string]bool) (written int64, err error) {
	var count atomic.Int64
	group, copying := errgroup.WithContext(ctx)
	group.SetLimit(aheadCount)
	for digest := range digests {
		group.Go(func() error {
			missing, err := copyChunk(copying, chunks, digest)
			if missing {
				count.Add(1)
			}
			return err
		})
	}
	err = group.Wait()
	return count.Load(), err
}

// copyChunk writes a chunk that can be read but is not stored. It reports whether it was missing.
func copyChunk(ctx context.Context, chunks Chunks, digest string) (missing bool, err error) {
	if has, err := chunks.Has(ctx, digest); has || err != nil {
		return false, err
	}
	content, err := chunks.Get(ctx, digest)
	if err != nil {
		return true, err
	}
	return true, putOnce(ctx, chunks, digest, content) // Reading it may have written it.
}

// StoreChunks is a node's store of artifacts as Chunks. Get fetches from other nodes.
type StoreChunks struct{ Store *artifact.Store }

var _ Chunks = StoreChunks{}

// Has implements Chunks.
func (k StoreChunks) Has(_ context.Context, digest string) (bool, error) { return k.Store.Has(digest) }

// Put implements Chunks.
func (k StoreChunks) Put(ctx context.Context, digest string, content []byte) error {
	return k.Store.Write(ctx, digest, content)
}

// Get implements Chunks. A chunk of which the nodes have only corrupt copies is missing: no node is
// lost, and another attempt would find the same copies. A chunk of another node is not stored if the
// disk is full.
func (k StoreChunks) Get(ctx context.Context, digest string) ([]byte, error) {
	content, err := k.get(ctx, digest)
	if errors.Is(err, artifact.ErrCorrupt) {
		err = outboard.Errorf(outboard.NotFound, "", "%w", err)
	}
	return content, err
}

func (k StoreChunks) get(ctx context.Context, digest string) ([]byte, error) {
	if err := k.Store.Ensure(ctx, digest); errors.Is(err, syscall.ENOSPC) {
		return artifact.FetchUnstored(ctx, k.Store, digest, maxManifest)
	} else if err != nil {
		return nil, err
	}
	size, err := k.Store.Size(digest)
	if err != nil {
		return nil, err
	}
	if size > maxManifest {
		return nil, outboard.Errorf(outboard.Invalid, digest, "it has %v, and is no part of a dataset or a checkpoint", outboard.Bytes(size))
	}
	return k.Store.Fetch(ctx, digest) // Again, if the copy is corrupt.
}
