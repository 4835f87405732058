package artifact

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
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

// MaxSize is how large a file may be.
const MaxSize = 1 << 30

// A Source is where a file comes from that is not in the store: other nodes.
type Source interface {
	// Fetch returns a file, which the store checks. It returns an outboard.NotFound
	// where nobody has it.
	Fetch(ctx context.Context, digest string) (io.ReadCloser, error)
}

// Options of a Store.
type Options struct {
	// Dir is the store's folder. It is made.
	Dir string
	// Source is asked for what is not in the store, nil for nobody.
	Source Source
	// Logger hears of files that are broken. The default discards.
	Logger *slog.Logger
}

// A Store keeps files by their content. All methods may be called by several
// goroutines, and several processes may have stores of one folder.
type Store struct {
	dir    string
	source Source
	log    *slog.Logger
}

// Open makes the store's folder where it is not there.
func Open(opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Store{dir: opts.Dir, source: opts.Source, log: opts.Logger}
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

// blob is where a file lies.
func (s *Store) blob(digest string) (string, error) {
	name, err := hexOf(digest)
	return s.at(blobsDir + "/" + name), err
}

// Has reports whether the store has a file. It stays at least as long from then on as a
// Collect spares what is new.
func (s *Store) Has(digest string) (bool, error) {
	path, err := s.blob(digest)
	if err != nil {
		return false, err
	}
	return s.touch(path)
}

// touch makes a file new for Collect, and reports whether it is there.
func (s *Store) touch(path string) (bool, error) {
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

// Size is how large a file of the store is.
func (s *Store) Size(digest string) (int64, error) {
	path, err := s.blob(digest)
	if err != nil {
		return 0, err
	}
	info, err := os.Stat(path)
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

// Read returns a file of the store. Its error is an outboard.NotFound where the store
// does not have it, or has something else in its place.
func (s *Store) Read(_ context.Context, digest string) ([]byte, error) {
	path, err := s.blob(digest)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, missing(digest)
	}
	if err != nil {
		return nil, fmt.Errorf("read artifact %s: %w", digest, err)
	}
	if found := Digest(content); found != digest {
		// Who wrote it was cut off, or the disk forgets: another node may have it whole.
		s.log.Warn("an artifact is broken and was taken away", "digest", digest, "error", os.Remove(path))
		return nil, missing(digest)
	}
	return content, nil
}

// Write puts a file into the store; digest must be its own.
func (s *Store) Write(ctx context.Context, digest string, content []byte) error {
	_, err := s.Save(ctx, digest, bytes.NewReader(content))
	return err
}

// Put puts a file into the store and returns its digest.
func (s *Store) Put(ctx context.Context, content []byte) (string, error) {
	digest := Digest(content)
	return digest, s.Write(ctx, digest, content)
}

// Save puts what r brings into the store, and returns its size. Nothing stays where
// its digest is another one.
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
	if there, err := s.touch(path); there || err != nil {
		return size, err
	}
	if err := os.Rename(temporary, path); err != nil {
		return 0, fmt.Errorf("%s %s: %w", op, digest, err)
	}
	return size, nil
}

// ingest writes what r brings to a file of its own.
func (s *Store) ingest(ctx context.Context, digest string, r io.Reader) (name string, size int64, err error) {
	f, err := os.CreateTemp(s.at(ingestDir), "new-*")
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(f.Name()) // it has not become anything
		}
	}()
	sum := sha256.New()
	size, err = io.Copy(io.MultiWriter(f, sum), io.LimitReader(&contextReader{ctx, r}, MaxSize+1))
	switch found := algorithm + hex.EncodeToString(sum.Sum(nil)); {
	case err != nil:
	case size > MaxSize:
		err = outboard.Errorf(outboard.Exhausted, "", "a file has %v at most", outboard.Bytes(MaxSize))
	case found != digest:
		err = differs(digest, found)
	default:
		err = f.Sync()
	}
	return f.Name(), size, err
}

// A contextReader ends with its context.
type contextReader struct {
	ctx context.Context //nolint:containedctx // of one copy
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}

// Fetch returns a file, from the store or else from the Source; then the store has it.
func (s *Store) Fetch(ctx context.Context, digest string) ([]byte, error) {
	content, err := s.Read(ctx, digest)
	if outboard.KindOf(err) != outboard.NotFound || s.source == nil {
		return content, err
	}
	r, err := s.source.Fetch(ctx, digest)
	if err != nil {
		return nil, fmt.Errorf("fetch artifact %s: %w", digest, err)
	}
	_, err = s.Save(ctx, digest, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	return s.Read(ctx, digest)
}

// lock takes the lock that all processes with this folder share.
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

// writeFile writes a file of the layout, whole or not at all.
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
		_ = os.Remove(f.Name()) // it has not become anything
	}
	return err
}
