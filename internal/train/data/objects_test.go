package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// objects is a bucket in memory.
type objects struct{ *memory }

func (o objects) Age(ctx context.Context, name string) (time.Duration, error) {
	has, err := o.Has(ctx, name)
	if err == nil && !has {
		err = outboard.Errorf(outboard.NotFound, "", "no object %s", name)
	}
	return 0, err
}

func (o objects) Get(_ context.Context, name string, _ int64) ([]byte, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if c, ok := o.chunks[name]; ok {
		return c, nil
	}
	return nil, outboard.Errorf(outboard.NotFound, "", "no object %s", name)
}

// A folder that one node has put into the bucket is restored by another one that has nothing, which
// keeps the chunks, and by the first one without the bucket.
func TestBucketWithCaches(t *testing.T) {
	ctx, from := context.Background(), t.TempDir()
	want := map[string]string{"a": strings.Repeat("x", chunkSize) + "y", "b/c": "z", "empty": ""}
	files := map[string][]byte{}
	for name, text := range want {
		files[name] = []byte(text)
	}
	write(t, from, files)
	bucket, east, west := objects{newMemory()}, newMemory(), newMemory()
	var m Manifest
	if err := m.AddFolder(ctx, Cached{east, bucket}, from, nil); err != nil {
		t.Fatal(err)
	}
	digest, err := Save(ctx, Cached{east, bucket}, &m)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		chunks Chunks
	}{{"west", Cached{west, bucket}}, {"the cache of west", west}, {"the cache of east", east}} {
		name, chunks := c.name, c.chunks
		loaded, err := Load(ctx, chunks, digest)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		to := filepath.Join(t.TempDir(), "copy")
		if err := loaded.Restore(ctx, chunks, to); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := read(t, to); !maps.Equal(got, want) {
			t.Errorf("%s has other files", name)
		}
	}
	if len(bucket.chunks) != 4 {
		t.Errorf("the bucket has %d objects, want 3 chunks and the manifest", len(bucket.chunks))
	}
}

// What only another node has is written to the bucket when it is read: Near fetches from nodes.
func TestChunksOfNodesWithoutABucket(t *testing.T) {
	ctx, bucket, near := context.Background(), objects{newMemory()}, newMemory()
	content := []byte("of another node")
	digest := artifact.Digest(content)
	c := Cached{fetching{near, digest, content}, bucket}
	if has, err := c.Has(ctx, digest); has || err != nil {
		t.Errorf("%v, %v: want that the bucket lacks it", has, err)
	}
	if got, err := c.Get(ctx, digest); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q, %v", got, err)
	}
	if has, err := c.Has(ctx, digest); !has || err != nil {
		t.Errorf("%v, %v: want that the bucket has it", has, err)
	}
}

// A chunk whose copy on this node is corrupt is read from the bucket, which heals the copy.
func TestCorruptChunksAreReadFromTheBucket(t *testing.T) {
	ctx, bucket, dir := t.Context(), objects{newMemory()}, t.TempDir()
	store, err := artifact.Open(artifact.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	content := []byte("content")
	digest := artifact.Digest(content)
	c := Cached{StoreChunks{Store: store}, bucket}
	if err := c.Put(ctx, digest, content); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "blobs", strings.ReplaceAll(digest, ":", "/")), []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(ctx, digest); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := store.Read(ctx, digest); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the node has %q, %v", got, err)
	}
}

// A chunk is read from the bucket if the node's disk is full, and from another node if the bucket may
// only be read; what has to be in the bucket fails then.
func TestChunksThatCannotBeWritten(t *testing.T) {
	ctx, bucket, near := t.Context(), objects{newMemory()}, newMemory()
	there, elsewhere := []byte("in the bucket"), []byte("of another node")
	if err := bucket.Put(ctx, nameOf(artifact.Digest(there)), there); err != nil {
		t.Fatal(err)
	}
	c := Cached{readOnly{fetching{near, artifact.Digest(elsewhere), elsewhere}}, readOnlyObjects{bucket}}
	for _, want := range [][]byte{there, elsewhere} {
		if got, err := c.Get(ctx, artifact.Digest(want)); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%q, %v, want %q", got, err, want)
		}
	}
	if _, err := copyChunk(ctx, c, artifact.Digest(elsewhere)); !errors.Is(err, errReadOnly) {
		t.Errorf("%v, want that the chunk can't be copied into the bucket", err)
	}
}

var errReadOnly = errors.New("read only")

type readOnly struct{ Chunks }

func (readOnly) Put(context.Context, string, []byte) error { return errReadOnly }

type readOnlyObjects struct{ Objects }

func (readOnlyObjects) Put(context.Context, string, []byte) error { return errReadOnly }

// fetching gets one chunk from elsewhere.
type fetching struct {
	*memory
	digest  string
	content []byte
}

func (f fetching) Get(_ context.Context, digest string) ([]byte, error) {
	if digest != f.digest {
		return nil, fmt.Errorf("no chunk %s", digest)
	}
	return f.content, nil
}

func TestChangedObjectsAreRefused(t *testing.T) {
	ctx, bucket := context.Background(), objects{newMemory()}
	content := []byte("content")
	digest := artifact.Digest(content)
	c := Cached{newMemory(), bucket}
	if err := bucket.Put(ctx, nameOf(digest), []byte("another")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(ctx, digest); err == nil || !strings.Contains(err.Error(), digest) || !strings.Contains(err.Error(), "other content") {
		t.Errorf("%v, want that the content is another one, and the name", err)
	}
	if _, err := c.Get(ctx, "../../secret"); err == nil {
		t.Error("a name that is no digest was asked for")
	}
}

// An object that has changed is replaced if another node has the chunk.
func TestChangedObjectsAreReplaced(t *testing.T) {
	ctx, bucket := context.Background(), objects{newMemory()}
	content := []byte("content")
	digest := artifact.Digest(content)
	if err := bucket.Put(ctx, nameOf(digest), content[:3]); err != nil {
		t.Fatal(err)
	}
	c := Cached{fetching{newMemory(), digest, content}, bucket}
	if got, err := c.Get(ctx, digest); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q, %v, want the content of the other node", got, err)
	}
	if got := bucket.chunks[nameOf(digest)]; !bytes.Equal(got, content) {
		t.Errorf("the bucket has %q, want the right content", got)
	}
}

// What was pushed to a node is copied to the bucket: chunks first, the manifest last.
func TestCopyWritesToTheBucket(t *testing.T) {
	ctx, from := context.Background(), t.TempDir()
	write(t, from, map[string][]byte{"a": []byte("x"), "b": []byte("y")})
	bucket, near := objects{newMemory()}, newMemory()
	var m Manifest
	if err := m.AddFolder(ctx, near, from, nil); err != nil {
		t.Fatal(err)
	}
	digest, err := Save(ctx, near, &m)
	if err != nil {
		t.Fatal(err)
	}
	bucket.left = 5 // Two questions, two answers and a question: all chunks at most.
	if _, err := Copy(ctx, Cached{near, bucket}, digest); !errors.Is(err, errKilled) {
		t.Fatalf("%v, want that it was killed", err)
	}
	if bucket.chunks[nameOf(digest)] != nil {
		t.Error("the manifest is there before its chunks")
	}
	bucket.left = -1
	if _, err := Copy(ctx, Cached{near, bucket}, digest); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(ctx, Cached{newMemory(), bucket}, digest); err != nil || len(bucket.chunks) != 3 {
		t.Errorf("%v, the bucket has %d objects, want 3", err, len(bucket.chunks))
	}
}

// A failure in the middle ends the fetches that are ahead.
func TestFailureWhileReadingAhead(t *testing.T) {
	ctx, chunks := context.Background(), newMemory()
	files := []File{{Name: "a"}}
	for i := range 3 * aheadCount {
		content := fmt.Appendf(nil, "chunk %d", i)
		digest := artifact.Digest(content)
		if err := chunks.Put(ctx, digest, content); err != nil {
			t.Fatal(err)
		}
		files[0].Chunks = append(files[0].Chunks, Chunk{digest, int64(len(content))})
	}
	delete(chunks.chunks, files[0].Chunks[5].Digest)
	a := fetchAhead(ctx, chunks, files)
	defer a.close()
	for i := range 6 {
		content, err := a.next()
		if ok := err == nil && string(content) == fmt.Sprintf("chunk %d", i); ok != (i < 5) {
			t.Errorf("chunk %d: %q, %v", i, content, err)
		}
	}
}
