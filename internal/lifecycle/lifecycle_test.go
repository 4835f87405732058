package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/lifecycle"
)

// journal records what services do, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) service(name string) lifecycle.Service {
	return lifecycle.Func(name, func(ctx context.Context, ready func()) error {
		j.add("start " + name)
		ready()
		<-ctx.Done()
		j.add("stop " + name)
		return nil
	})
}

func (j *journal) failing(name string, err error) lifecycle.Service {
	return lifecycle.Func(name, func(context.Context, func()) error {
		j.add("start " + name)
		return err
	})
}

func TestRunStopsInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- lifecycle.Run(ctx, func() { j.add("ready") }, j.service("a"), j.service("b"), j.service("c"))
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Fatalf("got %v, want nil", err)
		}
		want := []string{"start a", "start b", "start c", "ready", "stop c", "stop b", "stop a"}
		if diff := cmp.Diff(want, j.lines); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestRunRollsBack(t *testing.T) {
	boom := errors.New("boom")
	tests := map[string]struct {
		services func(j *journal) []lifecycle.Service
		want     []string
		err      error
	}{
		"failure before ready": {
			services: func(j *journal) []lifecycle.Service {
				return []lifecycle.Service{j.service("a"), j.failing("b", boom), j.service("c")}
			},
			want: []string{"start a", "start b", "stop a"},
			err:  boom,
		},
		"return without a reason": {
			services: func(j *journal) []lifecycle.Service {
				return []lifecycle.Service{j.service("a"), j.failing("b", nil)}
			},
			want: []string{"start a", "start b", "stop a"},
			err:  lifecycle.ErrStopped,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var j journal
			err := lifecycle.Run(t.Context(), func() { j.add("ready") }, test.services(&j)...)
			if !errors.Is(err, test.err) || !strings.HasPrefix(err.Error(), "b: ") {
				t.Errorf("got error %v, want b: %v", err, test.err)
			}
			if diff := cmp.Diff(test.want, j.lines); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunEndsWhenAServiceFailsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		boom, fail := errors.New("boom"), make(chan struct{})
		late := lifecycle.Func("late", func(_ context.Context, ready func()) error {
			ready()
			<-fail
			return boom
		})
		done := make(chan error)
		go func() { done <- lifecycle.Run(t.Context(), nil, j.service("a"), late, j.service("c")) }()
		synctest.Wait()
		close(fail)
		if err := <-done; !errors.Is(err, boom) {
			t.Errorf("got error %v, want %v", err, boom)
		}
		if diff := cmp.Diff([]string{"start a", "start c", "stop c", "stop a"}, j.lines); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestRunJoinsErrorsOfStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := errors.New("one"), errors.New("two")
		stopWith := func(name string, err error) lifecycle.Service {
			return lifecycle.Hold(name, func(context.Context) (lifecycle.Resource, error) { return closer{err}, nil })
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- lifecycle.Run(ctx, nil, stopWith("a", one), stopWith("b", two)) }()
		synctest.Wait()
		cancel()
		if err := <-done; !errors.Is(err, one) || !errors.Is(err, two) {
			t.Errorf("got %v, want both errors", err)
		}
	})
}

func TestCancelWhileStarting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		slow := lifecycle.Func("slow", func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- lifecycle.Run(ctx, func() { j.add("ready") }, j.service("a"), slow, j.service("c"))
		}()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if diff := cmp.Diff([]string{"start a", "stop a"}, j.lines); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

type closer struct{ err error }

func (c closer) Close() error { return c.err }
