package artifact

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

const (
	blobsDir   = "blobs/sha256"
	ingestDir  = "ingest"
	layoutFile = "oci-layout"
	indexFile  = "index.json"
	lockFile   = "lock"
)

// MaxSize bounds the size of a file in bytes.
const MaxSize = 64 << 30

// maxModule bounds the size of a WebAssembly module in bytes.
const maxModule = 1 << 30

// ErrCorrupt says that the last copy of a file that was fetched has other content.
var ErrCorrupt = errors.New("the copy of another node is corrupt")

// A Source provides files that are not in the store: other nodes.
type Source interface {
	// Copies yields the copies of a file, one after the other, until the store has verified one. The
	// store closes each. An error says why there are no more; it is of kind outboard.NotFound if no node
	// has the file.
	Copies(ctx context.Context, digest string) iter.Seq2[io.ReadCloser, error]
}

// Options configures a Store.
type Options struct {
	// Dir is the store's folder, which Open creates.
	Dir string
	// Shared is the folder of another store, whose files this one has as well. It is only
	// read; "" means none.
	Shared string
	// Source provides files that are not in the store; nil means none.
	Source Source
	// Logger receives reports of corrupt files. The default discards them.
	Logger *slog.Logger
}

// A Store is a content-addressed store of files. Its methods are safe for concurrent use by
// several goroutines, and several processes may open one folder.
type Store struct {
	dir    string
	shared string
	source Source
	log    *slog.Logger
	// promised is the space of the disk that files which are being written may take, in bytes.
	promised atomic.Int64
}

// Open opens a store, and creates its folder if it does not exist.
func Open(opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{dir: opts.Dir, shared: opts.Shared, source: opts.Source, log: opts.Logger}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open artifacts: %w", err)
	}
	return s, nil
}

func (s *Store) open() error {
	for _, dir := range []string{blobsDir, ingestDir} {
		if err := os.MkdirAll(s.at(dir), 0o700); err != nil {
			return err
		}
	}
	// Another process may have just made the index, and written to it.
	unlock, err := s.lock(unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	for name, text := range map[string]string{
		layoutFile: `{"imageLayoutVersion":"1.0.0"}`,
		indexFile:  `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[]}`,
	} {
		if _, err := os.Stat(s.at(name)); err == nil {
			continue
		}
		if err := s.writeFile(name, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) at(name string) string { return filepath.Join(s.dir, filepath.FromSlash(name)) }

// blob returns the path of a file.
func (s *Store) blob(digest string) (string, error) {
	name, err := hexOf(digest)
	return s.at(blobsDir + "/" + name), err
}

// Has reports whether the store has a file. If it does, Collect retains the file for as long
// as a new one.
func (s *Store) Has(digest string) (bool, error) {
	path, err := s.blob(digest)
	if err != nil {
		return false, err
	}
	if there, err := touch(s, path); there || err != nil || s.shared == "" {
		return there, err
	}
	_, err = s.statShared(digest)
	return err == nil, nil
}

// statShared describes a file of the shared folder.
func (s *Store) statShared(digest string) (fs.FileInfo, error) {
	path, err := s.sharedBlob(digest)
	if err != nil {
		return nil, err
	}
	return os.Stat(path)
}

// sharedBlob returns the path of a file in the shared folder.
func (s *Store) sharedBlob(digest string) (string, error) {
	name, err := hexOf(digest)
	if err == nil && s.shared == "" {
		err = fs.ErrNotExist
	}
	return filepath.Join(s.shared, filepath.FromSlash(blobsDir), name), err
}

// readShared reads a file of the shared folder. A corrupt file counts as missing: its owner deletes
// it.
func readShared(s *Store, digest string) ([]byte, error) {
	path, err := s.sharedBlob(digest)
	if err != nil {
		return nil, missing(digest)
	}
	content, err := os.ReadFile(path)
	if err != nil || Digest(content) != digest {
		return nil, missing(digest)
	}
	return content, nil
}

// touch updates a file's modification time for Collect, and reports whether the file exists.
func touch(s *Store, path string) (bool, error) {
	unlock, err := s.lock(unix.LOCK_SH)
	if err != nil {
		return false, err
	}
	defer unlock()
	err = os.Chtimes(path, time.Time{}, time.Now())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// Size returns the size of a file of the store in bytes.
func (s *Store) Size(digest string) (int64, error) {
	path, err := s.blob(digest)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		info, err = s.statShared(digest)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return 0, missing(digest)
	}
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func missing(digest string) error {
	return outboard.Errorf(outboard.NotFound, "", "there is no artifact %s here", digest)
}

// Read returns a file of the store. Its error is of kind outboard.NotFound if the store
// does not have the file, or has a corrupt copy, which Read deletes.
func (s *Store) Read(_ context.Context, digest string) ([]byte, error) {
	path, err := s.blob(digest)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return readShared(s, digest)
	}
	if err != nil {
		return nil, fmt.Errorf("read artifact %s: %w", digest, err)
	}
	defer f.Close()
	content, err := readFile(f)
	if err != nil {
		return nil, fmt.Errorf("read artifact %s: %w", digest, err)
	}
	if Digest(content) != digest {
		return nil, discard(s, digest, f)
	}
	return content, nil
}

// readFile reads a file that is not growing into memory of its size.
func readFile(f *os.File) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	content := make([]byte, info.Size())
	_, err = io.ReadFull(f, content)
	return content, err
}

// Write puts a file with the given digest into the store.
func (s *Store) Write(ctx context.Context, digest string, content []byte) error {
	_, err := s.Save(ctx, digest, bytes.NewReader(content))
	return err
}

// Put puts a file into the store and returns its digest.
func (s *Store) Put(ctx context.Context, content []byte) (string, error) {
	digest := Digest(content)
	return digest, s.Write(ctx, digest, content)
}

// Save puts the content of r into the store and returns its size. It stores nothing if the
// content's digest differs from digest.
func (s *Store) Save(ctx context.Context, digest string, r io.Reader) (int64, error) {
	const op = "save artifact"
	path, err := s.blob(digest)
	if err != nil {
		return 0, &outboard.Error{Op: op, Kind: outboard.Invalid, Err: err}
	}
	temporary, size, err := s.ingest(ctx, digest, r)
	if err != nil {
		return 0, &outboard.Error{Op: op + " " + digest, Kind: outboard.KindOf(err), Err: err}
	}
	defer os.Remove(temporary)
	if there, err := touch(s, path); there || err != nil {
		return size, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return 0, fmt.Errorf("%s %s: %w", op, digest, err)
	}
	return size, nil
}

// Fetch returns a file from the store, or else from the Source, and stores it.
func (s *Store) Fetch(ctx context.Context, digest string) ([]byte, error) {
	content, err := s.Read(ctx, digest)
	if outboard.KindOf(err) != outboard.NotFound || s.source == nil {
		return content, err
	}
	if err := fetch(ctx, s, digest); err != nil {
		return nil, err
	}
	return s.Read(ctx, digest)
}

// FetchUnstored returns a file of at most limit bytes from the Source of a store, which does not store it.
func FetchUnstored(ctx context.Context, s *Store, digest string, limit int64) (content []byte, err error) {
	if s.source == nil {
		return nil, missing(digest)
	}
	err = fetchWith(ctx, s, digest, func(r io.Reader) error {
		content, err = io.ReadAll(io.LimitReader(&contextReader{ctx, r}, limit+1))
		switch {
		case err != nil:
			return err
		case int64(len(content)) > limit:
			return outboard.Errorf(outboard.Exhausted, "", "it has more than %v", outboard.Bytes(limit))
		case Digest(content) != digest:
			return differs(digest, Digest(content))
		}
		return nil
	})
	return content, err
}

// fetch stores a file from the Source.
func fetch(ctx context.Context, s *Store, digest string) error {
	return fetchWith(ctx, s, digest, func(r io.Reader) error {
		_, err := s.Save(ctx, digest, r)
		return err
	})
}

// fetchWith reads a file from the Source by read, whose error is of kind outboard.Invalid for a corrupt
// copy. If the node that sends it is lost, or has a corrupt copy, fetchWith tries the next node that
// has the file.
func fetchWith(ctx context.Context, s *Store, digest string, read func(io.Reader) error) error {
	var failed error
	for r, err := range s.source.Copies(ctx, digest) {
		if err != nil {
			failed = cmp.Or(failed, err)
			break
		}
		err = errors.Join(read(r), r.Close())
		switch kind := outboard.KindOf(err); {
		case err == nil:
			return nil
		case ctx.Err() == nil && kind == outboard.Invalid:
			failed = outboard.Errorf(outboard.Unreachable, "", "%w: %w", ErrCorrupt, err)
		case ctx.Err() == nil && (kind == outboard.Unreachable || kind == outboard.NotFound):
			failed = err
		default:
			return fmt.Errorf("fetch: %w", err)
		}
	}
	return fmt.Errorf("fetch artifact %s: %w", digest, cmp.Or(failed, missing(digest)))
}

// lock acquires the lock that all processes with this folder share.
func (s *Store) lock(how int) (unlock func(), err error) {
	f, err := os.OpenFile(s.at(lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { _ = f.Close() }, nil // which unlocks
}

// writeFile replaces a file of the layout atomically.
func (s *Store) writeFile(name string, content []byte) error {
	f, err := os.CreateTemp(s.at(ingestDir), "new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.at(name))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it was not renamed
	}
	return err
}

// Ensure fetches a file from the Source unless the store has it. Unlike Fetch it does not read
// the file into memory.
func (s *Store) Ensure(ctx context.Context, digest string) error {
	if has, err := s.Has(digest); has || err != nil {
		return err
	}
	if s.source == nil {
		return missing(digest)
	}
	return fetch(ctx, s, digest)
}

// Link makes a file of the store appear at path, which must be on the file system of the store,
// without a copy of its content. All users may read it there. The content is not verified.
func (s *Store) Link(digest, path string) error {
	from, err := s.blob(digest)
	if err != nil {
		return err
	}
	err = os.Chmod(from, 0o444)
	if err == nil {
		err = os.Link(from, path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return missing(digest)
	}
	return err
}

// Verify reads a file of the store. Its error is of kind outboard.NotFound if the store does not have
// the file, or has a corrupt copy, which Verify deletes.
func (s *Store) Verify(ctx context.Context, digest string) error {
	path, err := s.blob(digest)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return missing(digest)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &contextReader{ctx, f}); err != nil {
		return err
	}
	if algorithm+hex.EncodeToString(sum.Sum(nil)) != digest {
		return discard(s, digest, f)
	}
	return nil
}

// discard deletes a corrupt file that is open: the disk has lost data, and another node may have an
// intact copy. A file that has been stored in its place meanwhile stays.
func discard(s *Store, digest string, corrupt *os.File) error {
	s.log.Warn("an artifact is corrupt and was deleted", "digest", digest, "error", removeFile(corrupt))
	return missing(digest)
}

// removeFile removes the name of an open file, unless another file has it.
func removeFile(f *os.File) error {
	own, err := f.Stat()
	if err != nil {
		return err
	}
	if now, err := os.Lstat(f.Name()); err != nil || !os.SameFile(own, now) {
		return nil //nolint:nilerr // another process has removed or replaced it
	}
	return os.Remove(f.Name())
}

// OpenFile opens a file of the store for reading, without verifying it.
func OpenFile(s *Store, digest string) (*os.File, error) {
	path, err := s.blob(digest)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(digest)
	}
	return f, err
}
