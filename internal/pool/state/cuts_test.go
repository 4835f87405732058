package state_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// Records that are appended while the connection is cut again and again are
// there once each, in order.
func TestAppendThroughCuts(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	node := alone(ctx, t)
	way := statetest.NewCutter(statetest.Lend(t, node.State))
	s := statetest.Attach(ctx, t, string(node.name), way.Dial)
	l := openLog(ctx, t, s)
	const cuts, writers = 6, 8
	stop := make(chan struct{})
	progress := make(chan struct{})
	var running sync.WaitGroup
	for writer := range writers {
		running.Go(func() { appendUntil(ctx, t, l, fmt.Sprint("t/app/", writer), stop, progress) })
	}
	for range cuts {
		for range 5 * writers {
			<-progress
		}
		way.Cut()
	}
	close(stop)
	running.Wait()
}

// appendUntil appends one record, then two, then one in two messages, and so on.
func appendUntil(
	ctx context.Context, t *testing.T, l *state.Log, key string, stop <-chan struct{}, progress chan<- struct{},
) {
	var want []string
	var seq uint64
	large := strings.Repeat("x", 600<<10)
	for i := 0; ; i++ {
		var data [][]byte
		for part := range i%3 + 1 {
			text := fmt.Sprintf("%d.%d", i, part)
			if i%30 == 29 {
				text += large // Two of these do not go into one message.
			}
			data, want = append(data, []byte(text)), append(want, text)
		}
		var err error
		if seq, err = l.Append(ctx, key, seq, data...); err != nil {
			t.Error(err)
			return
		}
		select {
		case progress <- struct{}{}:
		case <-stop:
			records, err := l.Read(ctx, key)
			if err != nil {
				t.Error(err)
			}
			if diff := cmp.Diff(texts(records), want); diff != "" {
				t.Errorf("history of %s: got against want:\n%.500s", key, diff)
			}
			return
		}
	}
}
