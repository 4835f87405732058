package guard

import (
	"bufio"
	"io"
)

// keptBody is how large a buffer is that a connection keeps between messages, in bytes.
const keptBody = 32 << 10

// A bodyReader reads the bodies of messages, one at a time. Small ones have a buffer that is part of
// what a connection is charged.
type bodyReader struct {
	held *holding
	kept []byte
}

// read reads size bytes, which are valid until free is called.
func (b *bodyReader) read(in *bufio.Reader, size int) (body []byte, free func(), err error) {
	if size <= keptBody {
		if b.kept == nil {
			b.kept = make([]byte, keptBody)
		}
		body, free = b.kept[:size], func() {}
	} else {
		if err := b.held.reserve(size); err != nil {
			return nil, nil, err
		}
		body, free = make([]byte, size), func() { b.held.release(size) }
	}
	if _, err := io.ReadFull(in, body); err != nil {
		free()
		return nil, nil, err
	}
	return body, free, nil
}
