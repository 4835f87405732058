package calls

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A Launcher starts a process that runs Run on socket, which stays the caller's to
// close. binary is the program, "" for the usual one.
type Launcher func(binary string, socket *os.File) (Launched, error)

// Launched is a process that was started.
type Launched interface {
	// Wait waits for the end, and says what was wrong with it.
	Wait() error
	// Kill ends it at once.
	Kill()
}

// Inside runs Run in this process, for tests of what uses a node.
func Inside(opts ProcessOptions) Launcher {
	return func(_ string, socket *os.File) (Launched, error) {
		own, err := duplicate(socket)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		l := &inside{cancel: cancel, done: make(chan struct{})}
		go func() {
			defer close(l.done)
			l.err = Run(ctx, own, opts)
		}()
		return l, nil
	}
}

func duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	own := -1
	if failed := raw.Control(func(fd uintptr) { own, err = dup(int(fd)) }); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(own), f.Name()), nil
}

type inside struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Wait implements Launched.
func (l *inside) Wait() error {
	<-l.done
	return l.err
}

// Kill implements Launched.
func (l *inside) Kill() { l.cancel() }

// Outside runs command, whose first word binary replaces, with the socket as
// descriptor 3. What the program writes to its standard error as JSON goes to log,
// and the end of it into the error of Wait.
func Outside(command []string, log *slog.Logger) Launcher {
	return func(binary string, socket *os.File) (Launched, error) {
		args := append([]string(nil), command...)
		if binary != "" {
			args[0] = binary
		}
		stderr, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer write.Close()
		own, err := duplicate(socket)
		if err != nil {
			return nil, errors.Join(err, stderr.Close())
		}
		defer own.Close()
		cmd := &exec.Cmd{
			Path: args[0], Args: args, Stderr: write, ExtraFiles: []*os.File{own},
			// A signal to the node's group is for the node, which says when to end.
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
		}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, stderr.Close())
		}
		l := &outside{cmd: cmd, log: log, stderr: stderr}
		l.reading.Go(l.listen)
		return l, nil
	}
}

type outside struct {
	cmd     *exec.Cmd
	log     *slog.Logger
	stderr  *os.File
	reading sync.WaitGroup
	words   lastWords
}

// Kill implements Launched.
func (l *outside) Kill() { _ = l.cmd.Process.Kill() }

// afterEnd is how long a process that has ended may still be read.
const afterEnd = time.Second

// Wait implements Launched.
func (l *outside) Wait() error {
	err := l.cmd.Wait()
	_ = l.stderr.SetReadDeadline(time.Now().Add(afterEnd))
	l.reading.Wait()
	_ = l.stderr.Close()
	if words := l.words.String(); err != nil && words != "" {
		return fmt.Errorf("%w: %s", err, words)
	}
	return err
}

// longLine is more than a line of a log has; the rest of it is lost.
const longLine = 64 << 10

// listen hands what the process writes on.
func (l *outside) listen() {
	in := bufio.NewReaderSize(l.stderr, longLine)
	for {
		line, err := in.ReadSlice('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.hear(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				l.log.Warn("the log of a helper process ended", "error", err)
			}
			return
		}
	}
}

// hear takes a line of what the process writes.
func (l *outside) hear(line []byte) {
	if r, ok := relay(l.log, line); ok {
		if r.level >= slog.LevelWarn {
			l.words.add(r.String())
		}
		return
	}
	text := strings.ToValidUTF8(string(line), "?")
	l.words.addOther(text)
	l.log.Warn("a helper process wrote", "line", text)
}

// relay logs a record that slog's JSONHandler wrote. It is not ok for other lines.
func relay(log *slog.Logger, line []byte) (r record, ok bool) {
	if r, ok = readRecord(line); ok {
		log.LogAttrs(context.Background(), r.level, r.text, r.attrs...) //nolint:sloglint // the other process has chosen the words
	}
	return r, ok
}

// A record is one of slog's.
type record struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// readRecord reads what slog's JSONHandler wrote. It is not ok for other lines.
func readRecord(line []byte) (r record, ok bool) {
	var all map[string]any
	in := json.NewDecoder(bytes.NewReader(line))
	in.UseNumber() // so that they look as they did
	if line[0] != '{' || in.Decode(&all) != nil || in.More() {
		return r, false
	}
	text, ok := all[slog.MessageKey].(string)
	name, is := all[slog.LevelKey].(string)
	if !ok || !is || r.level.UnmarshalText([]byte(name)) != nil {
		return r, false
	}
	delete(all, slog.MessageKey)
	delete(all, slog.LevelKey)
	delete(all, slog.TimeKey)
	r.text = text
	for key, value := range all {
		r.attrs = append(r.attrs, slog.Any(key, value))
	}
	sortAttrs(r.attrs)
	return r, true
}

// String is what matters of a record in an error: its text, and its error.
func (r *record) String() string {
	for _, a := range r.attrs {
		if a.Key == "error" {
			return r.text + ": " + a.Value.String()
		}
	}
	return r.text
}
