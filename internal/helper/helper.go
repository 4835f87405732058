// Package helper starts the helper processes of a node with a socket of the local protocol
// (internal/ipc), relays their logs, and reports why they ended.
package helper

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/lograte"
)

// A Launcher starts a process with one end of a socket, which the caller closes. program replaces
// the usual program if it is not empty.
type Launcher func(program string, socket *os.File) (Process, error)

// A Process is a process that was started.
type Process interface {
	// Wait waits for the end of the process, and returns its error.
	Wait() error
	// Kill ends the process at once.
	Kill()
}

// Goroutine returns a Launcher that calls run in a goroutine of this process instead, for
// tests. run closes its socket.
func Goroutine(run func(ctx context.Context, socket *os.File) error) Launcher {
	return func(_ string, socket *os.File) (Process, error) {
		own, err := Duplicate(socket)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithCancel(context.Background())
		g := &goroutine{cancel: cancel, done: make(chan struct{})}
		go func() {
			defer close(g.done)
			g.err = run(ctx, own)
		}()
		return g, nil
	}
}

// Duplicate copies a file's descriptor. It does not use File.Fd, which would make the file
// block for all its users.
func Duplicate(f *os.File) (*os.File, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	own := -1
	if failed := raw.Control(func(fd uintptr) { own, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) }); failed != nil {
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(own), f.Name()), nil
}

type goroutine struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error
}

// Wait implements Process.
func (g *goroutine) Wait() error {
	<-g.done
	return g.err
}

// Kill implements Process.
func (g *goroutine) Kill() { g.cancel() }

// Command returns a Launcher that executes command with the socket as descriptor 3. Log
// records that the program writes to its standard error as JSON go to log with the process's ID as
// "helper", and its last lines into the error of Wait. The program may run foreign code: lines beyond
// lograte's bounds are dropped.
func Command(command []string, log *slog.Logger) Launcher { return CommandWith(command, nil, log) }

// CommandWith is Command with another environment than that of this process, unless environ is nil.
func CommandWith(command, environ []string, log *slog.Logger) Launcher {
	return func(program string, socket *os.File) (Process, error) {
		args := append([]string(nil), command...)
		if program != "" {
			args[0] = program
		}
		stderr, write, err := os.Pipe()
		if err != nil {
			return nil, err
		}
		defer write.Close()
		own, err := Duplicate(socket)
		if err != nil {
			return nil, errors.Join(err, stderr.Close())
		}
		defer own.Close()
		cmd := &exec.Cmd{
			Path: args[0], Args: args, Env: environ, Stderr: write, ExtraFiles: []*os.File{own},
			// A signal to the node's group is for the node, which ends its helpers itself. Without the
			// node's terminal, foreign code can't type into it (ioctl_tty(2), TIOCSTI).
			SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		}
		if err := cmd.Start(); err != nil {
			return nil, errors.Join(err, stderr.Close())
		}
		p := &process{cmd: cmd, log: lograte.Unlimited(log), stderr: stderr}
		p.reading.Go(p.relayLog)
		return p, nil
	}
}

// A process is a program that was executed.
type process struct {
	cmd     *exec.Cmd
	log     *slog.Logger
	stderr  *os.File
	reading sync.WaitGroup
	report  exitReport
	lines   lograte.Limit
}

// PID returns the number of the process.
func (p *process) PID() int { return p.cmd.Process.Pid }

// Kill implements Process.
func (p *process) Kill() { _ = p.cmd.Process.Kill() }

// drainLimit is how long the output of a process that has ended is still read.
const drainLimit = time.Second

// Wait implements Process.
func (p *process) Wait() error {
	err := p.cmd.Wait()
	_ = p.stderr.SetReadDeadline(time.Now().Add(drainLimit))
	p.reading.Wait()
	_ = p.stderr.Close()
	if text := p.report.String(); err != nil && text != "" {
		return fmt.Errorf("%w: %s", err, text)
	}
	return err
}

// maxLine bounds a line of a log; the rest of it is lost.
const maxLine = 64 << 10

// relayLog logs the standard error of the process.
func (p *process) relayLog() {
	in := bufio.NewReaderSize(p.stderr, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			p.relayLine(line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
				p.log.Warn("the log of a helper process ended", "error", err)
			}
			return
		}
	}
}

func (p *process) relayLine(line []byte) {
	r, isRecord := readRecord(line)
	if !isRecord {
		r = record{level: slog.LevelWarn, text: "a helper process wrote", attrs: []slog.Attr{slog.String("line", strings.ToValidUTF8(string(line), "?"))}}
		p.report.addLine(r.attrs[0].Value.String())
	} else if r.level >= slog.LevelWarn {
		p.report.addRecord(r.String())
	}
	if !p.log.Enabled(context.Background(), r.level) {
		return
	}
	dropped, ok := p.lines.Allow(time.Now())
	if dropped > 0 {
		p.log.Warn("lines of a helper process were dropped", "helper", p.PID(), "lines", dropped)
	}
	if ok {
		r.write(p.log, p.PID())
	}
}

// write logs a record of the process with an ID. The process has chosen all of it, so the ID comes
// last: it tells the record from this process's own.
func (r *record) write(log *slog.Logger, pid int) {
	attrs := slices.DeleteFunc(r.attrs, func(a slog.Attr) bool { return a.Key == sourceKey })
	log.LogAttrs(context.Background(), r.level, r.text, append(attrs, slog.Int(sourceKey, pid))...) //nolint:sloglint // the other process has chosen the message
}

// sourceKey is the key of the process's ID in the records that it wrote.
const sourceKey = "helper"

// A record is a record of slog.
type record struct {
	level slog.Level
	text  string
	attrs []slog.Attr
}

// readRecord reads a record that slog's JSONHandler wrote. ok is false for other lines.
func readRecord(line []byte) (r record, ok bool) {
	var all map[string]any
	in := json.NewDecoder(bytes.NewReader(line))
	in.UseNumber() // so that numbers keep their digits
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
	slices.SortFunc(r.attrs, func(a, b slog.Attr) int { return cmp.Compare(a.Key, b.Key) })
	return r, true
}

// String returns the text of a record and its error, for an exit report.
func (r *record) String() string {
	for _, a := range r.attrs {
		if a.Key == "error" {
			return r.text + ": " + a.Value.String()
		}
	}
	return r.text
}
