package framed

import "sync"

// chunks buffers received bytes in order until they are read.
type chunks struct {
	list []*chunk
	size int
}

type chunk struct {
	from, to int
	data     [chunkSize]byte
}

const chunkSize = 32 << 10

var chunkPool = sync.Pool{New: func() any { return new(chunk) }}

// push takes over c. It merges small chunks, so that a peer that sends single bytes cannot make
// this side hold a chunk for each.
func (k *chunks) push(c *chunk) {
	k.size += c.to
	if n := len(k.list); n > 0 && k.list[n-1].to+c.to <= chunkSize {
		last := k.list[n-1]
		last.to += copy(last.data[last.to:], c.data[:c.to])
		chunkPool.Put(c)
		return
	}
	k.list = append(k.list, c)
}

func (k *chunks) read(p []byte) (n int) {
	for n < len(p) && k.size > 0 {
		c := k.list[0]
		m := copy(p[n:], c.data[c.from:c.to])
		c.from, n, k.size = c.from+m, n+m, k.size-m
		if c.from == c.to {
			k.shift()
		}
	}
	return n
}

func (k *chunks) shift() {
	chunkPool.Put(k.list[0])
	k.list[0] = nil
	k.list = k.list[1:]
}

func (k *chunks) drop() {
	for len(k.list) > 0 {
		k.shift()
	}
	k.size = 0
}
