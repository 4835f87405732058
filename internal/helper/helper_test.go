package helper

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/lograte"
)

// logBuffer keeps what is logged.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// A helper has a session of its own, and so not the terminal of its node.
func TestNoTerminal(t *testing.T) {
	near, far, err := ipc.Pair(ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	defer far.Close()
	p, err := Command([]string{"/bin/sh", "-c", "read line <&3"}, slog.New(slog.DiscardHandler))("", far)
	if err != nil {
		t.Fatal(err)
	}
	pid := p.(*process).PID()
	if session, err := unix.Getsid(pid); err != nil || session != pid {
		t.Errorf("process %d is in session %d, %v", pid, session, err)
	}
	p.Kill()
	_ = p.Wait()
}

// The node logs the records of a process in its own format.
func TestRelay(t *testing.T) {
	tests := map[string]struct {
		line, want string
		ok         bool
	}{
		"record":       {`{"time":"2026-11-20T14:00:00Z","level":"WARN","msg":"slow","b":2,"a":"x"}`, "level=WARN msg=slow a=x b=2 helper=7\n", true},
		"large number": {`{"level":"INFO","msg":"x","n":9196000000}`, "level=INFO msg=x n=9196000000 helper=7\n", true},
		"forged":       {`{"level":"INFO","msg":"x","helper":1,"node":"y"}`, "level=INFO msg=x node=y helper=7\n", true},
		"too quiet":    {`{"level":"DEBUG","msg":"x"}`, "", true},
		"no level":     {`{"msg":"x"}`, "", false},
		"other level":  {`{"level":"LOUD","msg":"x"}`, "", false},
		"no message":   {`{"level":"INFO"}`, "", false},
		"no object":    {`[1]`, "", false},
		"a panic's":    {"panic: x", "", false},
		"half a line":  {`{"level":"INFO",`, "", false},
		"not a string": {`{"level":"INFO","msg":1}`, "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out logBuffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
			r, ok := readRecord([]byte(test.line))
			if ok != test.ok {
				t.Errorf("got %v", ok)
			}
			if ok {
				r.write(log, 7)
			}
			if diff := cmp.Diff(test.want, out.text.String()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A process that writes without end fills no disk.
func TestRelayIsBounded(t *testing.T) {
	var out logBuffer
	p := process{cmd: &exec.Cmd{Process: &os.Process{Pid: 7}}, log: slog.New(slog.NewTextHandler(&out, nil))}
	for i := range 10_000 {
		p.relayLine([]byte("x"))
		p.relayLine(fmt.Appendf(nil, `{"level":"INFO","msg":"%d"}`, i))
		p.relayLine([]byte(`{"level":"DEBUG","msg":"x"}`)) // is not logged, and does not count
	}
	if got := strings.Count(out.text.String(), "\n"); got < lograte.Burst || got > 2*lograte.Burst {
		t.Errorf("%d lines were logged at once, want %d", got, lograte.Burst)
	}
	if text := p.report.String(); !strings.Contains(text, "x | x | x") {
		t.Errorf("the exit report is %q", text)
	}
}

func FuzzRelay(f *testing.F) {
	f.Add([]byte(`{"level":"WARN","msg":"slow","a":"x"}`))
	f.Add([]byte(`{"level":"INFO","msg":""}`))
	f.Add([]byte("panic"))
	log := slog.New(slog.DiscardHandler)
	f.Fuzz(func(_ *testing.T, line []byte) {
		if len(line) > 0 {
			if r, ok := readRecord(line); ok {
				r.write(log, 7)
			}
		}
	})
}
