package launch

import (
	"bytes"
	"sync"
	"unicode/utf8"
)

// maxLine bounds the bytes of a line: a longer one is emitted in parts.
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
		w.emitLong()
		if end > 0 {
			w.returned = false
		}
		if end == len(b) {
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

func (w *rankWriter) emit() { w.emitFirst(len(w.held)) }

// emitLong emits parts of a line that is longer than maxLine, between characters.
func (w *rankWriter) emitLong() {
	for len(w.held) > maxLine {
		end := maxLine
		for end > maxLine-utf8.UTFMax && !utf8.RuneStart(w.held[end]) {
			end--
		}
		w.emitFirst(end)
	}
}

// emitFirst emits the first n bytes.
func (w *rankWriter) emitFirst(n int) {
	w.to.mu.Lock()
	defer w.to.mu.Unlock()
	w.to.emit(Line{Rank: w.rank, Stderr: w.stderr, Text: w.held[:n]})
	w.held = w.held[:copy(w.held, w.held[n:])]
}
