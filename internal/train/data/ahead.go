package data

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard"
)

// aheadCount is the number of chunks that are fetched before they are needed: 64 MiB at most.
const aheadCount = 16

// An ahead fetches chunks before they are needed, in their order.
type ahead struct {
	cancel   context.CancelFunc
	fetching sync.WaitGroup
	results  chan (<-chan fetched)
}

// A fetched is a chunk, or the error of its fetch.
type fetched struct {
	content []byte
	err     error
}

// fetchAhead begins to fetch the chunks of files. The caller calls next for each, and close.
func fetchAhead(ctx context.Context, chunks Chunks, files []File) *ahead {
	ctx, cancel := context.WithCancel(ctx)
	// The fetch that next waits for is not in the channel any more.
	a := &ahead{cancel: cancel, results: make(chan (<-chan fetched), aheadCount-1)}
	a.fetching.Go(func() {
		defer close(a.results)
		for _, f := range files {
			for _, c := range f.Chunks {
				r := make(chan fetched, 1)
				select {
				case a.results <- r:
				case <-ctx.Done():
					return
				}
				a.fetching.Go(func() { r <- fetch(ctx, chunks, c) })
			}
		}
	})
	return a
}

func fetch(ctx context.Context, chunks Chunks, c Chunk) fetched {
	if isZeros(c) {
		return fetched{content: zeros().content}
	}
	content, err := chunks.Get(ctx, c.Digest)
	if err == nil && int64(len(content)) != c.Size {
		err = outboard.Errorf(outboard.Invalid, "chunk "+c.Digest, "it has %d bytes where %d are due", len(content), c.Size)
	}
	return fetched{content, err}
}

// next returns the next chunk.
func (a *ahead) next() ([]byte, error) {
	r, ok := <-a.results
	if !ok {
		return nil, context.Canceled
	}
	f := <-r
	return f.content, f.err
}

// close ends all fetches and waits for them.
func (a *ahead) close() {
	a.cancel()
	a.fetching.Wait()
}
