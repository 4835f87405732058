package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"

	"github.com/outboard-run/outboard"
)

// ingest writes the content of r to a temporary file and verifies its digest.
func (s *Store) ingest(ctx context.Context, digest string, r io.Reader) (name string, size int64, err error) {
	f, err := os.CreateTemp(s.at(ingestDir), "new-*")
	if err != nil {
		return "", 0, err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			_ = os.Remove(f.Name()) // it was not stored
		}
	}()
	content := &spaceReader{r: &contextReader{ctx, r}, dir: f.Name(), promised: &s.promised}
	defer content.release()
	found, size, err := receive(f, io.LimitReader(content, MaxSize+1))
	switch {
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

// A contextReader fails when its context has ended.
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

// Blocks of a file that is received. While blocks are hashed and written, the next ones are read: a
// peer goes on sending.
const (
	blockSize = 256 << 10
	maxBlocks = 4
)

// A receiver hashes and writes the blocks of a file.
type receiver struct {
	f          *os.File
	sum        hash.Hash
	full, free chan []byte
	blocks     int
	done       chan struct{} // closed when all blocks are written, or writing has failed
	err        error         // of writing; set before done is closed
}

// receive copies r to a file, and returns the digest and the size of the content.
func receive(f *os.File, r io.Reader) (digest string, size int64, err error) {
	w := &receiver{f: f, sum: sha256.New(), full: make(chan []byte, maxBlocks), free: make(chan []byte, maxBlocks), done: make(chan struct{})}
	go w.write()
	for err == nil {
		b := w.block()
		if b == nil {
			break // writing has failed
		}
		var n int
		n, err = fill(r, b)
		size += int64(n)
		w.full <- b[:n]
	}
	close(w.full)
	<-w.done
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return algorithm + hex.EncodeToString(w.sum.Sum(nil)), size, errors.Join(w.err, err)
}

// block returns a block to fill, nil after writing has failed.
func (w *receiver) block() []byte {
	select {
	case b := <-w.free:
		return b
	default:
	}
	if w.blocks < maxBlocks {
		w.blocks++
		return make([]byte, blockSize)
	}
	select {
	case b := <-w.free:
		return b
	case <-w.done:
		return nil
	}
}

// write hashes and writes the blocks.
func (w *receiver) write() {
	defer close(w.done)
	var at int64
	for b := range w.full {
		w.sum.Write(b)
		if _, w.err = w.f.Write(b); w.err != nil {
			return
		}
		startWriteback(w.f, at, int64(len(b)))
		at += int64(len(b))
		w.free <- b[:blockSize]
	}
}

// fill reads until b is full or r ends. Unlike io.ReadFull it returns the errors of r unchanged: one
// that ends early is distinguishable from one that has ended.
func fill(r io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var read int
		read, err = r.Read(b[n:])
		n += read
	}
	return n, err
}
