package data

import (
	"context"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// Objects is a bucket of an object store. *object.Bucket implements it.
type Objects interface {
	// Age returns the time since an object was written, by the server's clock. If there is none the
	// error's kind is NotFound.
	Age(ctx context.Context, name string) (time.Duration, error)
	Put(ctx context.Context, name string, content []byte) error
	// Get returns an object of at most limit bytes. If there is none the error's kind is NotFound.
	Get(ctx context.Context, name string, limit int64) ([]byte, error)
}

// Cached is a bucket with a cache: Near has the chunks that this node has written or read, and
// those of nodes without a bucket; Objects has all.
type Cached struct {
	Near    Chunks
	Objects Objects
}

var _ Chunks = Cached{}

// Prefixes of the names of chunks, and of parts of sums (sums/JOB/...).
const (
	chunksPrefix = "chunks/"
	sumsPrefix   = "sums/"
)

// nameOf returns the name of a chunk's object.
func nameOf(digest string) string { return chunksPrefix + strings.ReplaceAll(digest, ":", "/") }

// digestOf returns the digest of the chunk that an object's name has.
func digestOf(name string) string {
	return strings.Replace(strings.TrimPrefix(name, chunksPrefix), "/", ":", 1)
}

// Has implements Chunks: a chunk is stored if the bucket has it and no collection will delete it
// soon. A caller that writes an old chunk again makes it young.
func (c Cached) Has(ctx context.Context, digest string) (bool, error) {
	if err := artifact.CheckDigest(digest); err != nil {
		return false, err
	}
	age, err := c.Objects.Age(ctx, nameOf(digest))
	if outboard.KindOf(err) == outboard.NotFound {
		return false, nil
	}
	return err == nil && age < reuseAge, err
}

// Put implements Chunks.
func (c Cached) Put(ctx context.Context, digest string, content []byte) error {
	if err := c.Objects.Put(ctx, nameOf(digest), content); err != nil {
		return err
	}
	return c.Near.Put(ctx, digest, content)
}

// Get implements Chunks: it reads a chunk from this node, else from the bucket, else from another
// node, which has no bucket or wrote it before the bucket's object changed; in the last case it also
// writes the chunk to the bucket. A chunk that was read counts even if it can't be written, to a disk
// that is full or a bucket that may only be read: Copy, whose callers need it there, writes it itself.
func (c Cached) Get(ctx context.Context, digest string) ([]byte, error) {
	if err := artifact.CheckDigest(digest); err != nil {
		return nil, err
	}
	has, err := c.Near.Has(ctx, digest)
	if err != nil {
		return nil, err
	}
	if has {
		if content, err := c.Near.Get(ctx, digest); outboard.KindOf(err) != outboard.NotFound {
			return content, err
		}
		// It was corrupt, and no other node has it.
	}
	content, err := c.Objects.Get(ctx, nameOf(digest), maxManifest)
	switch {
	case err == nil && artifact.Digest(content) == digest:
		_ = c.Near.Put(ctx, digest, content)
		return content, nil
	case err != nil && outboard.KindOf(err) != outboard.NotFound:
		return nil, err
	}
	found, elsewhere := c.Near.Get(ctx, digest)
	switch {
	case elsewhere == nil:
		_ = c.Objects.Put(ctx, nameOf(digest), found)
		return found, nil
	case err == nil && ctx.Err() == nil:
		return nil, outboard.Errorf(outboard.Invalid, digest, "the bucket has other content under this name, and no node has the right one: push the dataset again")
	}
	return nil, elsewhere
}
