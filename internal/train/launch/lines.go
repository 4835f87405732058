package launch

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// maxLine is how much of a line is held until its end comes.
const maxLine = 64 << 10

// lines writes the lines of ranks one after the other.
type lines struct {
	mu  sync.Mutex
	out io.Writer
}

func (l *lines) of(rank int) *rankWriter {
	return &rankWriter{to: l, prefix: fmt.Appendf(nil, "[%d] ", rank)}
}

// A rankWriter passes on what a rank writes, line by line.
type rankWriter struct {
	to     *lines
	prefix []byte
	held   []byte
}

// Write never fails: a rank must not end because its output can't be shown.
func (w *rankWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		w.held, b = append(w.held, line...), rest
		if ended || len(w.held) > maxLine {
			w.emit()
		}
	}
	return n, nil
}

// flush passes on a last line without an end.
func (w *rankWriter) flush() {
	if len(w.held) > 0 {
		w.emit()
	}
}

func (w *rankWriter) emit() {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	_, _ = w.to.out.Write(append(append(bytes.Clone(w.prefix), w.held...), '\n'))
	w.held = w.held[:0]
}
