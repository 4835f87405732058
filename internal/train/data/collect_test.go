package data

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
)

// A timedBucket is a bucket in memory with the time at which each object was written. A request and
// its reply each take up to a few seconds of the test's clock, so that requests overlap.
type timedBucket struct {
	mu      sync.Mutex
	random  *rand.Rand
	objects map[string][]byte
	written map[string]time.Time
	// failDelete makes each Delete fail.
	failDelete bool
}

func newTimedBucket(seed uint64) *timedBucket {
	return &timedBucket{random: rand.New(rand.NewPCG(seed, 1)), objects: map[string][]byte{}, written: map[string]time.Time{}}
}

// request performs a request between two delays.
func (b *timedBucket) request(perform func()) {
	b.mu.Lock()
	there, back := time.Duration(b.random.Int64N(int64(3*time.Second))), time.Duration(b.random.Int64N(int64(3*time.Second)))
	b.mu.Unlock()
	time.Sleep(there)
	b.mu.Lock()
	perform()
	b.mu.Unlock()
	time.Sleep(back)
}

func (b *timedBucket) Age(_ context.Context, name string) (age time.Duration, err error) {
	b.request(func() {
		if b.objects[name] == nil {
			err = outboard.Errorf(outboard.NotFound, "", "no object %s", name)
		}
		age = time.Since(b.written[name])
	})
	return age, err
}

func (b *timedBucket) Put(_ context.Context, name string, content []byte) error {
	b.request(func() { b.objects[name], b.written[name] = slices.Clone(content), time.Now() })
	return nil
}

func (b *timedBucket) Get(_ context.Context, name string, _ int64) (content []byte, err error) {
	b.request(func() {
		if content = b.objects[name]; content == nil {
			err = outboard.Errorf(outboard.NotFound, "", "no object %s", name)
		}
	})
	return content, err
}

func (b *timedBucket) Delete(_ context.Context, name string) (err error) {
	b.request(func() {
		if b.failDelete {
			err = errors.New("killed")
			return
		}
		delete(b.objects, name)
	})
	return err
}

func (b *timedBucket) List(_ context.Context, prefix string, visit func(string, int64, time.Duration) error) error {
	type object struct {
		name string
		size int64
		age  time.Duration
	}
	var all []object
	b.request(func() {
		for name, content := range b.objects {
			if strings.HasPrefix(name, prefix) {
				all = append(all, object{name, int64(len(content)), time.Since(b.written[name])})
			}
		}
	})
	for _, o := range all {
		if err := visit(o.name, o.size, o.age); err != nil {
			return err
		}
	}
	return nil
}

// addText adds a file to a manifest.
func addText(ctx context.Context, chunks Chunks, m *Manifest, text string) error {
	f, err := os.CreateTemp("", "")
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("content of " + text)
	return errors.Join(err, os.Remove(f.Name()), m.AddFile(ctx, chunks, text, 0o600, f))
}

// manifestOf returns a manifest with a chunk for each text, and its chunks in a bucket.
func manifestOf(ctx context.Context, chunks Chunks, texts ...string) (*Manifest, string, error) {
	var m Manifest
	for _, text := range texts {
		if err := addText(ctx, chunks, &m, text); err != nil {
			return nil, "", err
		}
	}
	digest, err := Save(ctx, chunks, &m)
	return &m, digest, err
}

const day = 24 * time.Hour

// A writer saves a manifest whose chunks are in the bucket, old and needed by nothing, while a
// collection deletes them. Whatever the order of their requests, the chunks of the manifest are
// there when both have ended.
func TestWriterAndCollectorRace(t *testing.T) {
	for seed := range uint64(120) {
		synctest.Test(t, func(t *testing.T) {
			ctx, bucket := t.Context(), newTimedBucket(seed)
			chunks := Cached{newMemory(), bucket}
			texts := []string{"a", "b", "c", "d"}
			if _, _, err := manifestOf(ctx, chunks, texts...); err != nil {
				t.Fatal(err)
			}
			time.Sleep(40 * day)
			var mu sync.Mutex
			needs := Needs{Chunks: map[string]bool{}}
			var wanted map[string]bool
			var both sync.WaitGroup
			both.Go(func() {
				bucket.request(func() {})
				bucket.request(func() {})
				m, digest, err := manifestOf(ctx, chunks, texts...)
				if err != nil {
					t.Error(err)
					return
				}
				wanted = map[string]bool{digest: true}
				m.Digests(wanted)
				time.Sleep(time.Hour) // Until the record of the pool is seen.
				mu.Lock()
				defer mu.Unlock()
				m.Digests(needs.Chunks)
			})
			both.Go(func() {
				c := Collection{Bucket: bucket, Age: MinCollectAge, Needs: func(context.Context) (Needs, error) {
					for range seed % 12 { // The manifests are read.
						bucket.request(func() {})
					}
					mu.Lock()
					defer mu.Unlock()
					copied := Needs{Chunks: map[string]bool{}}
					for digest := range needs.Chunks {
						copied.Chunks[digest] = true
					}
					return copied, nil
				}}
				if _, err := c.Run(ctx); err != nil {
					t.Error(err)
				}
			})
			both.Wait()
			for digest := range wanted {
				if bucket.objects[nameOf(digest)] == nil {
					t.Errorf("seed %d: the collection has deleted %s", seed, digest)
				}
			}
		})
	}
}

// A collection deletes what is old and not needed: chunks, and sums of jobs that have ended. A dry
// run deletes nothing. Objects with other names stay.
func TestCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, bucket := t.Context(), newTimedBucket(1)
		chunks := Cached{newMemory(), bucket}
		kept, keptDigest, err := manifestOf(ctx, chunks, "kept", "shared")
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := manifestOf(ctx, chunks, "shared", "dropped"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"sums/job-ended/1/x", "sums/job-running/1/x", "chunks/README", "sums/README", "other"} {
			if err := bucket.Put(ctx, name, []byte("text")); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(8 * day)
		if _, _, err := manifestOf(ctx, chunks, "young"); err != nil {
			t.Fatal(err)
		}
		needs := Needs{Chunks: map[string]bool{keptDigest: true}, Jobs: map[string]bool{"job-running": true, "job-ended": false}}
		kept.Digests(needs.Chunks)
		c := Collection{Bucket: bucket, Age: 8 * day, DryRun: true, Needs: func(context.Context) (Needs, error) { return needs, nil }}
		before := len(bucket.objects)
		done, err := c.Run(ctx)
		if err != nil || len(bucket.objects) != before || done.Unneeded.Objects != 3 || done.Deleted.Objects != 0 {
			t.Errorf("a dry run: %+v, %v, %d objects of %d are left", done, err, len(bucket.objects), before)
		}
		c.DryRun = false
		if done, err = c.Run(ctx); err != nil || done.Deleted.Objects != 3 || done.Deleted.Size != done.Unneeded.Size || len(bucket.objects) != before-3+1 {
			t.Errorf("%+v, %v, %d objects of %d are left", done, err, len(bucket.objects), before)
		}
		if bucket.objects["sums/job-ended/1/x"] != nil {
			t.Error("a part of a sum of an ended job is left")
		}
		if _, err := Load(ctx, chunks, keptDigest); err != nil {
			t.Error(err)
		}
		c.Needs = func(context.Context) (Needs, error) { return needs, errors.New("the node is away") }
		if _, err := c.Run(ctx); err == nil || !strings.Contains(err.Error(), "nothing was deleted") {
			t.Errorf("%v, want that nothing was deleted", err)
		}
		c.Age = MinCollectAge - 1
		if _, err := c.Run(ctx); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%v, want that the age is refused", err)
		}
	})
}

// Has does not rely on an old chunk, so that a writer makes it young.
func TestOldChunksAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, bucket := t.Context(), newTimedBucket(1)
		chunks := Cached{newMemory(), bucket}
		_, digest, err := manifestOf(ctx, chunks, "a")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			after time.Duration
			has   bool
		}{{3 * day, true}, {day, false}} {
			time.Sleep(c.after)
			if has, err := chunks.Has(ctx, digest); has != c.has || err != nil {
				t.Errorf("%v, %v, want %v", has, err, c.has)
			}
		}
		if _, _, err := manifestOf(ctx, chunks, "a"); err != nil {
			t.Fatal(err)
		}
		if has, err := chunks.Has(ctx, digest); !has || err != nil {
			t.Errorf("%v, %v, want that it is young again", has, err)
		}
	})
}

// An interrupted collection keeps other collections, and the writers of the objects that it was
// deleting, waiting for half an hour, and no longer.
func TestInterruptedCollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, bucket := t.Context(), newTimedBucket(1)
		chunks := Cached{newMemory(), bucket}
		if _, _, err := manifestOf(ctx, chunks, "a"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(40 * day)
		c := Collection{Bucket: bucket, Age: MinCollectAge, Needs: func(context.Context) (Needs, error) { return Needs{}, nil }}
		bucket.failDelete = true
		if _, err := c.Run(ctx); err == nil {
			t.Fatal("the collection was not interrupted")
		}
		bucket.failDelete = false
		if _, err := c.Run(ctx); outboard.KindOf(err) != outboard.Conflict {
			t.Errorf("%v, want that another collection is in progress", err)
		}
		began := time.Now()
		if _, _, err := manifestOf(ctx, chunks, "other"); err != nil || time.Since(began) > time.Minute {
			t.Errorf("%v after %v: want that other chunks do not wait", err, time.Since(began))
		}
		if _, _, err := manifestOf(ctx, chunks, "a"); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < 25*time.Minute || waited > 35*time.Minute {
			t.Errorf("the writer has waited %v", waited)
		}
		if _, err := c.Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// Names that others have written to the bucket are not held in memory while its objects are listed.
func TestNamesOfOthersAreNotHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTimedBucket(1)
		long := strings.Repeat("x", 1000)
		digest := "sha256:" + strings.Repeat("0", 64)
		for _, name := range []string{nameOf(digest), sumsPrefix + "job/0-1", chunksPrefix + long, nameOf(digest) + long, sumsPrefix + "job/" + long, sumsPrefix + "x"} {
			b.objects[name] = []byte("x")
		}
		var done Collected
		old, err := (&Collection{Bucket: b, Age: MinCollectAge}).listOld(t.Context(), &done)
		if err != nil || len(old) != 2 || done.Listed.Objects != 6 {
			t.Errorf("%d of %d objects are held, %v: want those of the pool", len(old), done.Listed.Objects, err)
		}
	})
}
