package data

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// A collection deletes objects of a bucket that the pool does not need. It runs beside writers,
// without locks: docs/design/0013-training.md, "Collection in the bucket", has the argument that it
// deletes nothing that a writer relies on.

const (
	// MinCollectAge is the least age of an object that a collection deletes. reuseAge is the age
	// from which a writer writes a chunk again instead of relying on it: the difference is the time
	// that a writer has from its look at a chunk until a record of the pool names the manifest.
	MinCollectAge = 7 * 24 * time.Hour
	reuseAge      = MinCollectAge / 2

	// announcement is the object with the names that a collection deletes now: none between batches
	// and after the end.
	announcement = "collecting"
	// batchSize is the number of objects that are announced together, and then checked and deleted
	// within batchLimit. After announceLimit an announcement is that of an interrupted collection:
	// its requests are refused by then, since signatures are valid for 15 minutes.
	batchSize     = 200
	batchLimit    = 5 * time.Minute
	announceLimit = 30 * time.Minute
	// writerPause is the time between two looks of a writer at an announcement.
	writerPause = time.Second

	maxAnnouncement = 1 << 20
	// maxCandidates bounds the old objects of a collection.
	maxCandidates = 5_000_000
)

// A Bucket is a bucket whose objects can be collected. *object.Bucket implements it.
type Bucket interface {
	Objects
	// List calls visit with the name, the bytes and the age of each object whose name begins with
	// prefix, until visit returns an error.
	List(ctx context.Context, prefix string, visit func(name string, size int64, age time.Duration) error) error
	Delete(ctx context.Context, name string) error
}

// Needs are what a pool needs in its bucket.
type Needs struct {
	// Chunks are digests: those of manifests and of the chunks that these name.
	Chunks map[string]bool
	// Jobs are the jobs that may still sum gradients through the bucket.
	Jobs map[string]bool
}

// A Collection deletes the chunks and the parts of sums that nothing needs.
type Collection struct {
	Bucket Bucket
	// Needs returns what is needed now. It is called after the bucket was listed.
	Needs func(ctx context.Context) (Needs, error)
	// Age is the least age of a deleted object, at least MinCollectAge.
	Age time.Duration
	// DryRun only counts.
	DryRun bool
	// Progress, if not nil, is called now and then.
	Progress func(Collected)
}

// Collected counts the objects of a collection.
type Collected struct {
	// Listed are all chunks and parts of sums of the bucket; Unneeded those of them that are old
	// enough and not needed; Deleted those that were deleted. The others were written again, or
	// deleted by someone else, meanwhile.
	Listed   Count `json:"listed"`
	Unneeded Count `json:"unneeded"`
	Deleted  Count `json:"deleted"`
}

// A Count is a number of objects and their bytes.
type Count struct {
	Objects int64          `json:"objects"`
	Size    outboard.Bytes `json:"size"`
}

func (c *Count) add(size int64) {
	c.Objects++
	c.Size += outboard.Bytes(size)
}

// A candidate is an object that may be deleted.
type candidate struct {
	name string
	size int64
}

// Run deletes what is not needed. If it returns an error, what it has deleted was not needed
// either.
func (c *Collection) Run(ctx context.Context) (Collected, error) {
	var done Collected
	if c.Age < MinCollectAge {
		return done, outboard.Errorf(outboard.Invalid, "collect", "an age of %v: want at least %v, in which writers rely on what they have found", c.Age, MinCollectAge)
	}
	if err := c.checkAlone(ctx); err != nil {
		return done, err
	}
	old, err := c.listOld(ctx, &done)
	if err != nil {
		return done, err
	}
	needs, err := c.Needs(ctx)
	if err != nil {
		return done, fmt.Errorf("nothing was deleted, since what the pool needs is not known: %w", err)
	}
	old = slices.DeleteFunc(old, func(o candidate) bool { return needs.has(o.name) })
	for _, o := range old {
		done.Unneeded.add(o.size)
	}
	if c.DryRun {
		return done, nil
	}
	for batch := range slices.Chunk(old, batchSize) {
		if err := c.deleteBatch(ctx, batch, &done); err != nil {
			return done, err
		}
		c.report(done)
	}
	return done, nil
}

func (c *Collection) report(done Collected) {
	if c.Progress != nil {
		c.Progress(done)
	}
}

// checkAlone returns an error if another collection is in progress.
func (c *Collection) checkAlone(ctx context.Context) error {
	a, err := announced(ctx, c.Bucket)
	if err != nil || len(a.names) == 0 {
		return err
	}
	return outboard.Errorf(outboard.Conflict, "collect", "another collection is in progress, or was interrupted %v ago: try again in %v",
		a.age.Round(time.Second), (announceLimit - a.age).Round(time.Second))
}

// listOld returns the objects that are old enough to be deleted.
func (c *Collection) listOld(ctx context.Context, done *Collected) (old []candidate, err error) {
	for _, prefix := range []string{chunksPrefix, sumsPrefix} {
		err := c.Bucket.List(ctx, prefix, func(name string, size int64, age time.Duration) error {
			if done.Listed.add(size); done.Listed.Objects%1000 == 0 {
				c.report(*done)
			}
			if age >= c.Age && isCollectable(name) {
				old = append(old, candidate{name, size})
			}
			if len(old) > maxCandidates {
				return outboard.Errorf(outboard.Exhausted, "collect", "more than %d objects are older than %v: begin with a greater age", maxCandidates, c.Age)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return old, nil
}

// maxSumName bounds the name of a part of a sum, in bytes: others can write to the bucket, and their
// names may have 1,024.
const maxSumName = 256

// isCollectable reports whether the name of an object is that of a chunk or of a part of a sum.
// Others are not Outboard's to delete, and their names are not held in memory.
func isCollectable(name string) bool {
	if strings.HasPrefix(name, chunksPrefix) {
		digest := digestOf(name)
		return artifact.CheckDigest(digest) == nil && nameOf(digest) == name
	}
	_, _, ok := strings.Cut(strings.TrimPrefix(name, sumsPrefix), "/")
	return ok && len(name) <= maxSumName
}

// has reports whether a collectable object is needed.
func (n *Needs) has(name string) bool {
	if strings.HasPrefix(name, chunksPrefix) {
		return n.Chunks[digestOf(name)]
	}
	job, _, _ := strings.Cut(strings.TrimPrefix(name, sumsPrefix), "/")
	return n.Jobs[job]
}

// deleteBatch announces objects, and then deletes those that are still old: a writer that wrote one
// again before it could see the announcement has made it young. After an error the announcement
// stays, since a request may still be in transit.
func (c *Collection) deleteBatch(ctx context.Context, batch []candidate, done *Collected) error {
	ctx, cancel := context.WithTimeout(ctx, batchLimit)
	defer cancel()
	names := make([]string, len(batch))
	for i, o := range batch {
		names[i] = o.name
	}
	if err := c.announce(ctx, names); err != nil {
		return err
	}
	var mu sync.Mutex
	group, deleting := errgroup.WithContext(ctx)
	group.SetLimit(aheadCount)
	for _, o := range batch {
		group.Go(func() error {
			deleted, err := c.deleteOld(deleting, o.name)
			if deleted {
				mu.Lock()
				defer mu.Unlock()
				done.Deleted.add(o.size)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return c.announce(ctx, []string{})
}

func (c *Collection) announce(ctx context.Context, names []string) error {
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return c.Bucket.Put(ctx, announcement, text)
}

// deleteOld deletes an object unless it was written again.
func (c *Collection) deleteOld(ctx context.Context, name string) (deleted bool, err error) {
	age, err := c.Bucket.Age(ctx, name)
	switch {
	case outboard.KindOf(err) == outboard.NotFound:
		return false, nil
	case err != nil || age < c.Age:
		return false, err
	}
	err = c.Bucket.Delete(ctx, name)
	return err == nil, err
}

// A collectable store may lose chunks to a collection while they are written.
type collectable interface {
	// awaitCollection waits as long as a collection may delete one of the chunks. It reports
	// whether one may have done so.
	awaitCollection(ctx context.Context, digests map[string]bool) (recent bool, err error)
}

// confirm makes sure that the chunks of a manifest and the manifest, which have been written, are
// stored: a collection may have found a chunk old, and deleted it after it was written again. Once
// no batch of a collection names the chunk, those that exist are safe: later batches find them
// young.
func confirm(ctx context.Context, chunks Chunks, m *Manifest, digest string) error {
	store, ok := chunks.(collectable)
	if !ok {
		return nil
	}
	digests := map[string]bool{digest: true}
	m.Digests(digests)
	for {
		recent, err := store.awaitCollection(ctx, digests)
		if err != nil || !recent {
			return err
		}
		written, err := copyChunks(ctx, chunks, digests)
		if err != nil || written == 0 {
			return err
		}
	}
}

// awaitCollection implements collectable.
func (c Cached) awaitCollection(ctx context.Context, digests map[string]bool) (recent bool, err error) {
	for {
		a, err := announced(ctx, c.Objects)
		if err != nil || !a.recent {
			return false, err
		}
		concerned := slices.ContainsFunc(a.names, func(name string) bool { return digests[digestOf(name)] })
		if !concerned {
			return true, nil
		}
		select {
		case <-time.After(writerPause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// An announcedBatch is the state of collections of a bucket.
type announcedBatch struct {
	// recent says that a collection may have deleted chunks while a writer of today worked.
	recent bool
	age    time.Duration
	names  []string // that are being deleted
}

// announced returns the state of collections.
func announced(ctx context.Context, objects Objects) (announcedBatch, error) {
	// The text is read before its age: if another text replaces it in between, that belongs to a
	// batch that was announced later.
	text, err := objects.Get(ctx, announcement, maxAnnouncement)
	var a announcedBatch
	if err == nil {
		a.age, err = objects.Age(ctx, announcement)
	}
	if outboard.KindOf(err) == outboard.NotFound {
		return a, nil
	}
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a.names); err != nil {
		return a, outboard.Errorf(outboard.Invalid, "object "+announcement, "it is no announcement of a collection: %w", err)
	}
	if a.age >= announceLimit {
		a.names = nil
	}
	a.recent = a.age < reuseAge
	return a, nil
}
