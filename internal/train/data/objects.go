package data

import (
	"context"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// Objects is a bucket of an object store. *object.Bucket implements it.
type Objects interface {
	Has(ctx context.Context, name string) (bool, error)
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

// nameOf returns the name of a chunk's object.
func nameOf(digest string) string { return "chunks/" + strings.ReplaceAll(digest, ":", "/") }

// Has implements Chunks: a chunk is stored if the bucket has it.
func (c Cached) Has(ctx context.Context, digest string) (bool, error) {
	if err := artifact.CheckDigest(digest); err != nil {
		return false, err
	}
	return c.Objects.Has(ctx, nameOf(digest))
}

// Put implements Chunks.
func (c Cached) Put(ctx context.Context, digest string, content []byte) error {
	if err := c.Objects.Put(ctx, nameOf(digest), content); err != nil {
		return err
	}
	return c.Near.Put(ctx, digest, content)
}

// Get implements Chunks: it reads a chunk from this node, else from the bucket, else from another
// node, which has no bucket; in the last case it also writes the chunk to the bucket.
func (c Cached) Get(ctx context.Context, digest string) ([]byte, error) {
	if err := artifact.CheckDigest(digest); err != nil {
		return nil, err
	}
	if has, err := c.Near.Has(ctx, digest); err != nil || has {
		if err != nil {
			return nil, err
		}
		return c.Near.Get(ctx, digest)
	}
	content, err := c.Objects.Get(ctx, nameOf(digest), maxManifest)
	switch {
	case outboard.KindOf(err) == outboard.NotFound:
		if content, err = c.Near.Get(ctx, digest); err != nil {
			return nil, err
		}
		return content, c.Objects.Put(ctx, nameOf(digest), content)
	case err != nil:
		return nil, err
	case artifact.Digest(content) != digest:
		return nil, outboard.Errorf(outboard.Invalid, digest, "the bucket has other content under this name: push the dataset again, or resume from another checkpoint")
	}
	return content, c.Near.Put(ctx, digest, content)
}
