package launch

import (
	"bytes"
	"sync"
)

// maxLine is how many bytes of a line are held until its end comes.
const maxLine = 64 << 10

// A Line is what a rank has written, without the line's end.
type Line struct {
	Rank   int
	Stderr bool
	// Text belongs to the call that gets the line.
	Text []byte
}

// lines emits the lines of ranks one after the other.
type lines struct {
	mu   sync.Mutex
	emit func(Line)
}

func (l *lines) of(rank int, stderr bool) *rankWriter {
	return &rankWriter{to: l, rank: rank, stderr: stderr}
}

// A rankWriter divides what a rank writes into lines.
type rankWriter struct {
	to     *lines
	rank   int
	stderr bool
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

// flush emits a last line without an end.
func (w *rankWriter) flush() {
	if len(w.held) > 0 {
		w.emit()
	}
}

func (w *rankWriter) emit() {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	w.to.emit(Line{Rank: w.rank, Stderr: w.stderr, Text: w.held})
	w.held = w.held[:0]
}
