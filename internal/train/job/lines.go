package job

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/outboard-run/outboard/client"
)

// maxLines bounds the file with the lines of a job, in bytes.
const maxLines = 64 << 20

// lines is the file of the lines that the ranks of a job have written, each a JSON object.
type lines struct {
	mu     sync.Mutex
	file   *os.File
	size   int64
	closed bool
	next   chan struct{} // closed at the next line, and at the end
}

func linesPath(dir, id string) string { return filepath.Join(dir, id+".jsonl") }

func removeLines(dir, id string) error { return os.Remove(linesPath(dir, id)) }

func openLines(dir, id string) (*lines, error) {
	f, err := os.OpenFile(linesPath(dir, id), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &lines{file: f, size: info.Size(), next: make(chan struct{})}, nil
}

// add appends a line. Lines beyond maxLines are dropped, as the last line says.
func (l *lines) add(j client.JobLine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.size >= maxLines {
		return
	}
	text, err := json.Marshal(j)
	if err != nil {
		return
	}
	if l.size+int64(len(text)) >= maxLines {
		text, l.size = []byte(`{"rank":-1,"text":"further lines are not kept"}`), maxLines
	}
	n, _ := l.file.Write(append(text, '\n')) // A full disk costs the line, not the job.
	l.size += int64(n)
	l.wake()
}

func (l *lines) wake() {
	close(l.next)
	l.next = make(chan struct{})
}

// state returns how many bytes there are, whether more may come, and a channel that is closed at
// the next change.
func (l *lines) state() (size int64, open bool, next <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size, !l.closed, l.next
}

// Close ends the file.
func (l *lines) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	l.wake()
	return l.file.Close()
}

// Lines calls emit with the last lines of a job of this node, all for 0, and with follow also
// with later ones until the job ends.
func (m *Manager) Lines(ctx context.Context, id string, last int, follow bool, emit func(client.JobLine) error) error {
	if _, err := m.own(id); err != nil {
		return err
	}
	a := m.activeJob(id)
	f, err := os.Open(linesPath(m.opts.Dir, id))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := &lineReader{in: bufio.NewReader(f)}
	if err := r.emitLast(last, emit); err != nil || !follow || a == nil {
		return err
	}
	for {
		_, open, next := a.lines.state()
		if err := r.emitAll(emit); err != nil {
			return err
		}
		if !open {
			return nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// A lineReader reads whole lines of a file that grows.
type lineReader struct {
	in   *bufio.Reader
	part []byte
}

// next returns the next whole line, io.EOF if there is none yet.
func (r *lineReader) next() ([]byte, error) {
	text, err := r.in.ReadBytes('\n')
	r.part = append(r.part, text...)
	if err != nil {
		return nil, err
	}
	text, r.part = r.part, nil
	return text, nil
}

func (r *lineReader) emitAll(emit func(client.JobLine) error) error {
	for {
		text, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var j client.JobLine
		if json.Unmarshal(text, &j) != nil {
			continue // A line that a crash has cut short.
		}
		if err := emit(j); err != nil {
			return err
		}
	}
}

// emitLast emits the last lines of the file, all for 0.
func (r *lineReader) emitLast(last int, emit func(client.JobLine) error) error {
	if last == 0 {
		return r.emitAll(emit)
	}
	var kept []client.JobLine
	err := r.emitAll(func(j client.JobLine) error {
		if kept = append(kept, j); len(kept) > last {
			kept = kept[1:]
		}
		return nil
	})
	for _, j := range kept {
		if err == nil {
			err = emit(j)
		}
	}
	return err
}
