package lograte

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestLimit(t *testing.T) {
	var l Limit
	now := time.Unix(1, 0)
	written := 0
	for range 100_000 {
		if _, ok := l.Allow(now); ok {
			written++
		}
	}
	if written != Burst {
		t.Errorf("%d lines at once, want %d", written, Burst)
	}
	if dropped, ok := l.Allow(now.Add(time.Second)); !ok || dropped != 100_000-Burst {
		t.Errorf("after a second: %v, %d lines reported as dropped", ok, dropped)
	}
	for range 9 {
		if _, ok := l.Allow(now.Add(time.Second)); !ok {
			t.Error("ten lines a second are refused")
		}
	}
	if _, ok := l.Allow(now.Add(time.Second)); ok {
		t.Error("more than ten lines a second are written")
	}
}

// Each message has its own bound, which all loggers of a log share, and information has none.
func TestHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		log := slog.New(NewHandler(slog.NewTextHandler(&out, nil)))
		for i := range 1000 {
			log.With("peer", i).Warn("refused", "number", i)
			log.WithGroup("group").Warn("refused", "number", i)
			log.Info("granted")
		}
		log.Error("ended")
		for range 1000 {
			Unlimited(log.With("a", 1)).Warn("unlimited")
		}
		for text, want := range map[string]int{"msg=refused": Burst, "msg=granted": 1000, "msg=ended": 1, "msg=unlimited a=1": 1000, "dropped": 0} {
			if got := strings.Count(out.String(), text); got != want {
				t.Errorf("%s: %d times, want %d", text, got, want)
			}
		}
		time.Sleep(Interval) // of the fake clock
		log.Warn("refused")
		if text := fmt.Sprintf("dropped=%d", 2000-Burst); !strings.Contains(out.String(), text) {
			t.Errorf("no record with %s", text)
		}
	})
}

// A log with ever other messages is bounded as well.
func TestManyMessages(t *testing.T) {
	var out strings.Builder
	h := NewHandler(slog.NewTextHandler(&out, nil))
	for i := range 10 * maxMessages {
		_ = h.Handle(t.Context(), slog.NewRecord(time.Unix(1, 0), slog.LevelWarn, fmt.Sprint(i), 0))
	}
	if got := strings.Count(out.String(), "\n"); got != maxMessages+Burst {
		t.Errorf("%d records, want %d", got, maxMessages+Burst)
	}
}
