package engine

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// An operation that is repeated is logged once, and shown by the health until it succeeds.
func TestRetryIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		all := &failing{log: slog.New(slog.NewTextHandler(&log, nil))}
		began, done := time.Now(), make(chan struct{})
		go func() {
			defer close(done)
			_, err := retry(t.Context(), all, "save a value", func() (int, error) {
				if time.Since(began) < time.Minute {
					return 0, errors.New("no such store")
				}
				return 1, nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		if err := all.health(); err != nil {
			t.Errorf("at the first error: %v", err)
		}
		time.Sleep(30 * time.Second) // by the clock of the test
		if err := all.health(); err == nil || !strings.Contains(err.Error(), "1 executions wait for operations that fail and are repeated; one of them: save a value: no such store") {
			t.Errorf("while it fails: %v", err)
		}
		<-done
		if err := all.health(); err != nil {
			t.Errorf("after it has succeeded: %v", err)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 {
			t.Errorf("%d lines are logged:\n%s", n, &log)
		}
	})
}
