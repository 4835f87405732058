package worker

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/lograte"
)

// A model's process that writes without end fills no disk, and is not blocked either.
func TestLinesOfAModelAreBounded(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c := &child{stderr: read, log: slog.New(slog.NewTextHandler(&out, nil))}
	c.reading.Go(c.readStderr)
	for range 10_000 {
		if _, err := write.WriteString("a line\n"); err != nil {
			t.Fatal(err)
		}
	}
	_ = write.Close()
	c.reading.Wait()
	if got := strings.Count(out.String(), "a line"); got < lograte.Burst || got > 2*lograte.Burst {
		t.Errorf("%d lines were logged at once, want %d", got, lograte.Burst)
	}
	if c.last != "a line" {
		t.Errorf("the last line is %q", c.last)
	}
}
