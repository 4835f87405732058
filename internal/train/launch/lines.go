package launch

import (
	"bytes"
	"sync"
)

// maxLine bounds the bytes of a line that are held until its end arrives.
const maxLine = 64 << 10

// A Line is a line that a rank has written, without its end.
type Line struct {
	Rank   int
	Stderr bool
	// Text is valid only during the call of Emit.
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

// A rankWriter divides the output of a rank into lines. A carriage return ends a line, too: programs
// overwrite lines that show their progress.
type rankWriter struct {
	to       *lines
	rank     int
	stderr   bool
	held     []byte
	returned bool // the last byte was a carriage return that ended a line: a line feed belongs to it
}

// Write never fails: a rank must not end because its output can't be shown.
func (w *rankWriter) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		end := bytes.IndexAny(b, "\r\n")
		if end < 0 {
			end = len(b)
		}
		w.held = append(w.held, b[:end]...)
		if end > 0 {
			w.returned = false
		}
		if end == len(b) {
			if len(w.held) > maxLine {
				w.emit()
			}
			return n, nil
		}
		isReturn := b[end] == '\r'
		ends := len(w.held) > 0 || !isReturn && !w.returned
		if ends {
			w.emit()
		}
		w.returned, b = isReturn && ends, b[end+1:]
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
