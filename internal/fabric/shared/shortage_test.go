package shared_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/fabric/shared"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// logText keeps what is logged.
type logText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logText) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// A listener that runs out of descriptors serves again when there are some.
func TestServeSurvivesShortage(t *testing.T) {
	var log logText
	path := filepath.Join(t.TempDir(), "socket")
	l, err := shared.Listen(path, shared.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	waiting, err := unixsock.Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	restore := exhaustDescriptors(t)
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- l.Serve(ctx, func(*shared.Conn) error { return nil }) }()
	for limit := time.Now().Add(2 * time.Minute); !log.has("connections are not accepted for the moment"); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			restore()
			t.Fatal("the shortage was not reported")
		}
	}
	restore()
	c, err := shared.Dial(t.Context(), path, shared.Options{Handshake: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if !log.has("connections are accepted again") {
		t.Error("the end of the shortage was not reported")
	}
	cancel()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// exhaustDescriptors leaves this process no descriptor until the function that it returns is
// called.
func exhaustDescriptors(t *testing.T) (restore func()) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for {
		f, err := os.Open(os.DevNull)
		if err != nil {
			break
		}
		files = append(files, f)
	}
	return sync.OnceFunc(func() {
		for _, f := range files {
			_ = f.Close()
		}
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &before)
	})
}
