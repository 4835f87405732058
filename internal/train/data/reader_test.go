package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// readerOf returns a reader of files that were written in chunks of their own, and their contents.
func readerOf(t fataler, chunks *memory, sizes map[string][]int) (*Reader, map[string][]byte) {
	m, contents := &Manifest{}, map[string][]byte{}
	for name, list := range sizes {
		f := File{Name: name}
		for i, size := range list {
			content := bytes.Repeat(fmt.Appendf(nil, "%s/%d ", name, i), size)[:size]
			digest := artifact.Digest(content)
			if err := chunks.Put(context.Background(), digest, content); err != nil {
				t.Fatal(err)
			}
			f.Chunks = append(f.Chunks, Chunk{digest, int64(size)})
			contents[name] = append(contents[name], content...)
		}
		m.Files = append(m.Files, f)
	}
	return NewReader(m, chunks), contents
}

type fataler interface{ Fatal(...any) }

// Every part of a file is that of its content, wherever chunks begin.
func TestReaderReadsEveryPart(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(1, 9), 0, 5).Draw(t, "chunks")
		r, contents := readerOf(t, newMemory(), map[string][]int{"a": sizes})
		defer r.Close()
		content := contents["a"]
		from := rapid.IntRange(0, len(content)).Draw(t, "from")
		to := rapid.IntRange(from, len(content)).Draw(t, "to")
		buf := make([]byte, to-from)
		if err := r.Read(context.Background(), "a", int64(from), buf, nil); err != nil || !bytes.Equal(buf, content[from:to]) {
			t.Errorf("%q, %v, want %q", buf, err, content[from:to])
		}
	})
}

func TestReaderRefuses(t *testing.T) {
	r, _ := readerOf(t, newMemory(), map[string][]int{"a": {3}})
	defer r.Close()
	for name, c := range map[string]struct {
		file string
		at   int64
		size int
		want outboard.Kind
	}{
		"another file":    {"b", 0, 1, outboard.NotFound},
		"behind the end":  {"a", 2, 2, outboard.Invalid},
		"before the file": {"a", -1, 1, outboard.Invalid},
		"far behind":      {"a", 1 << 62, 0, outboard.Invalid},
	} {
		if err := r.Read(context.Background(), c.file, c.at, make([]byte, c.size), nil); outboard.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Ranks that read the same files have each chunk fetched once, as long as it is held, and no more
// chunks are held than may be.
func TestReaderFetchesOnce(t *testing.T) {
	counted := &counting{memory: newMemory(), gets: map[string]int{}}
	sizes, names := map[string][]int{}, []string{}
	for i := range 3 * maxHeld {
		names = append(names, fmt.Sprintf("file %03d", i))
		sizes[names[i]] = []int{100}
	}
	r, contents := readerOf(t, counted.memory, sizes)
	r.chunks = counted
	for i, name := range names {
		var ranks sync.WaitGroup
		for range 4 {
			ranks.Go(func() {
				buf := make([]byte, 100)
				if err := r.Read(context.Background(), name, 0, buf, names[i+1:]); err != nil || !bytes.Equal(buf, contents[name]) {
					t.Errorf("%s: %q, %v", name, buf, err)
				}
			})
		}
		ranks.Wait()
	}
	if n := r.order.Len(); n > maxHeld {
		t.Errorf("%d chunks are held, want %d at most", n, maxHeld)
	}
	_ = r.Close()
	for digest, n := range counted.gets {
		if n > 1 {
			t.Errorf("chunk %s was fetched %d times", digest, n)
		}
	}
}

// counting counts the reads of each chunk.
type counting struct {
	*memory
	mu   sync.Mutex
	gets map[string]int
}

func (c *counting) Get(ctx context.Context, digest string) ([]byte, error) {
	c.mu.Lock()
	c.gets[digest]++
	c.mu.Unlock()
	return c.memory.Get(ctx, digest)
}

// What follows is fetched while the caller uses what it has read: the next read needs no chunk that
// is not under way.
func TestReaderFetchesAhead(t *testing.T) {
	chunks := newMemory()
	r, contents := readerOf(t, chunks, map[string][]int{"a": {5, 5}, "b": {5}})
	buf := make([]byte, 5)
	if err := r.Read(context.Background(), "a", 0, buf, []string{"b"}); err != nil {
		t.Fatal(err)
	}
	r.fetching.Wait()
	clear(chunks.chunks)
	for name, at := range map[string]int64{"a": 5, "b": 0} {
		if err := r.Read(context.Background(), name, at, buf, nil); err != nil || !slices.Equal(buf, contents[name][at:at+5]) {
			t.Errorf("%s: %q, %v", name, buf, err)
		}
	}
	_ = r.Close()
}

// A chunk that is not there fails the read; when it is there, the next read succeeds.
func TestReaderTriesAgain(t *testing.T) {
	chunks := newMemory()
	r, contents := readerOf(t, chunks, map[string][]int{"a": {5}})
	defer r.Close()
	digest := r.files["a"].Chunks[0].Digest
	delete(chunks.chunks, digest)
	buf := make([]byte, 5)
	if err := r.Read(context.Background(), "a", 0, buf, nil); err == nil {
		t.Error("a missing chunk was read")
	}
	_ = chunks.Put(context.Background(), digest, contents["a"])
	if err := r.Read(context.Background(), "a", 0, buf, nil); err != nil || !bytes.Equal(buf, contents["a"]) {
		t.Errorf("%q, %v", buf, err)
	}
}

// corruptSource is other nodes with corrupt copies of all chunks.
type corruptSource struct{}

func (corruptSource) Copies(_ context.Context, digest string) iter.Seq2[io.ReadCloser, error] {
	return func(yield func(io.ReadCloser, error) bool) {
		for range 2 {
			if !yield(io.NopCloser(strings.NewReader("rot")), nil) {
				return
			}
		}
		yield(nil, outboard.Errorf(outboard.NotFound, "", "no other node has %s", digest))
	}
}

// fullSource is another node with one chunk. The disk of the store is full when it writes the first copy.
type fullSource struct {
	content []byte
	asked   *int
}

func (s fullSource) Copies(context.Context, string) iter.Seq2[io.ReadCloser, error] {
	return func(yield func(io.ReadCloser, error) bool) {
		*s.asked++
		var r io.Reader = bytes.NewReader(s.content)
		if *s.asked == 1 {
			r = iotest.ErrReader(outboard.Errorf(outboard.Exhausted, "", "the disk is full (%w)", syscall.ENOSPC))
		}
		yield(io.NopCloser(r), nil)
	}
}

// Chunks of other nodes are read without being stored when this node's disk is full.
func TestChunksOnAFullDisk(t *testing.T) {
	content, asked := []byte("of another node"), 0
	store, err := artifact.Open(artifact.Options{Dir: t.TempDir(), Source: fullSource{content, &asked}})
	if err != nil {
		t.Fatal(err)
	}
	digest := artifact.Digest(content)
	if got, err := (StoreChunks{Store: store}).Get(t.Context(), digest); err != nil || !bytes.Equal(got, content) {
		t.Errorf("%q, %v", got, err)
	}
	if has, err := store.Has(digest); has || err != nil {
		t.Errorf("it is stored: %t, %v", has, err)
	}
}

// A chunk of which the nodes have only corrupt copies is missing, which ends a job: as for a lost node,
// it would be started again. The error names the file.
func TestChunksThatAreCorruptEverywhere(t *testing.T) {
	store, err := artifact.Open(artifact.Options{Dir: t.TempDir(), Source: corruptSource{}})
	if err != nil {
		t.Fatal(err)
	}
	m := &Manifest{Files: []File{{Name: "a/b", Chunks: []Chunk{{Digest: artifact.Digest([]byte("right")), Size: 5}}}}}
	chunks := StoreChunks{Store: store}
	r := NewReader(m, chunks)
	defer r.Close()
	for what, err := range map[string]error{
		"restored": m.Restore(t.Context(), chunks, filepath.Join(t.TempDir(), "to")),
		"read":     r.Read(t.Context(), "a/b", 0, make([]byte, 5), nil),
	} {
		if outboard.KindOf(err) != outboard.NotFound || !strings.Contains(err.Error(), "a/b") || !errors.Is(err, artifact.ErrCorrupt) {
			t.Errorf("%s: %v, of kind %v", what, err, outboard.KindOf(err))
		}
	}
}
