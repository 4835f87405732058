package launch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func job(script string, n int, out *bytes.Buffer) Job {
	return Job{
		Path: "/bin/sh", Args: []string{"sh", "-c", script}, Ranks: n,
		Emit:    func(l Line) { fmt.Fprintf(out, "[%d] %s\n", l.Rank, l.Text) },
		Environ: func(rank int) []string { return append(os.Environ(), fmt.Sprint("RANK=", rank)) },
	}
}

func TestLinesSayWhichRankWroteThem(t *testing.T) {
	var out bytes.Buffer
	if err := Run(context.Background(), job(`echo "I am $RANK"; printf "no end $RANK"`, 3, &out)); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(got)
	want := []string{"[0] I am 0", "[0] no end 0", "[1] I am 1", "[1] no end 1", "[2] I am 2", "[2] no end 2"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// The others would wait for ever, and have children that would stay.
func TestOneRankThatFailsEndsAll(t *testing.T) {
	var out bytes.Buffer
	err := Run(context.Background(), job(`if [ $RANK = 1 ]; then echo no memory; exit 7; fi; sleep 1000 & wait`, 3, &out))
	f, ok := errors.AsType[*Failure](err)
	if !ok || f.Rank != 1 || f.Status != 7 {
		t.Errorf("Run = %v, want the failure of rank 1 with status 7", err)
	}
	if !strings.Contains(out.String(), "[1] no memory") {
		t.Errorf("wrote %q, want what rank 1 wrote", out.String())
	}
}

// A rank may end before the rank that it has lost, which still finalizes: the failure of the lost rank
// is the one that is shown.
func TestTheLostRankFailsFirst(t *testing.T) {
	for name, c := range map[string]struct{ status, want int }{"it fails": {7, 1}, "it ends": {0, 0}} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			dir := t.TempDir()
			// Rank 1 ends once the process of rank 0 is gone.
			j := job(fmt.Sprintf(`cd %s; if [ $RANK = 1 ]; then echo $$ >lost; mv lost pid1; while ! test -f pid0 || kill -0 $(cat pid0) 2>/dev/null; do :; done; exit %d; fi
while ! test -f pid1; do :; done; echo $$ >own; mv own pid0; exit 3`, dir, c.status), 2, &out)
			j.causeLimit = time.Hour
			j.LeftBefore = func(own int) []int {
				var pid int
				text, err := os.ReadFile(filepath.Join(dir, "pid1"))
				if err == nil {
					_, err = fmt.Sscan(string(text), &pid)
				}
				if err != nil {
					t.Error(err)
				}
				if pid == own {
					return nil
				}
				return []int{pid}
			}
			err := Run(t.Context(), j)
			if f, ok := errors.AsType[*Failure](err); !ok || f.Rank != c.want {
				t.Errorf("%v, want the failure of rank %d", err, c.want)
			}
		})
	}
}

func TestARankThatIsKilledIsTold(t *testing.T) {
	var out bytes.Buffer
	err := Run(context.Background(), job(`kill -9 $$`, 1, &out))
	if f, ok := errors.AsType[*Failure](err); !ok || f.Status != 137 {
		t.Errorf("Run = %v, want status 137", err)
	}
}

// Ranks that fail because one was killed are not the cause, whichever end is noticed first.
func TestAKilledRankIsTheCause(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	// Rank 1 leaves a child that holds its output; rank 0 fails as soon as rank 1 has gone.
	j := job(`if [ $RANK = 1 ]; then exec 3>"$PIPE"; sleep 1000 3>&- & kill -9 $$; fi; read end <"$PIPE"; exit 1`, 2, new(bytes.Buffer))
	environ := j.Environ
	j.Environ = func(rank int) []string { return append(environ(rank), "PIPE="+pipe) }
	j.Grace = time.Minute
	f, ok := errors.AsType[*Failure](Run(context.Background(), j))
	if !ok || f.Rank != 1 || !f.Killed {
		t.Errorf("got %+v, want that rank 1 was killed", f)
	}
}

// A rank that outlives its grace gets SIGKILL and counts as stopped, not as killed.
func TestAStoppedRankIsNoFailure(t *testing.T) {
	j := job(`if [ $RANK = 1 ]; then exit 7; fi; trap "" TERM; while :; do sleep 1000 & wait; done`, 2, new(bytes.Buffer))
	j.Grace = 100 * time.Millisecond
	f, ok := errors.AsType[*Failure](Run(context.Background(), j))
	if !ok || f.Rank != 1 || f.Status != 7 {
		t.Errorf("got %+v, want the failure of rank 1", f)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	j := job(`echo ready; sleep 1000 & wait`, 2, nil)
	j.Emit = func(l Line) { w.Write(l.Text) }
	go func() {
		_, _ = r.Read(make([]byte, 1))
		cancel()
	}()
	if err := Run(ctx, j); !errors.Is(err, context.Canceled) {
		t.Errorf("Run = %v, want context.Canceled", err)
	}
}

func TestAProgramThatIsMissingIsNamed(t *testing.T) {
	var out bytes.Buffer
	j := job("", 2, &out)
	j.Path = "/does/not/exist"
	if err := Run(context.Background(), j); err == nil || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("Run = %v, want the path", err)
	}
}

// A rank that ends to continue as another process is started again, under the same rank.
func TestRanksThatContinueAreStartedAgain(t *testing.T) {
	var out bytes.Buffer
	j := job(`echo "process $PROCESS of $RANK"`, 2, &out)
	started := make([]atomic.Int32, 2)
	j.Environ = func(rank int) []string {
		return append(os.Environ(), fmt.Sprint("RANK=", rank), fmt.Sprint("PROCESS=", started[rank].Add(1)))
	}
	j.Continues = func(rank int) bool { return rank == 1 && started[rank].Load() < 3 }
	if err := Run(context.Background(), j); err != nil {
		t.Fatal(err)
	}
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	slices.Sort(got)
	want := []string{"[0] process 1 of 0", "[1] process 1 of 1", "[1] process 2 of 1", "[1] process 3 of 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A rank that SIGKILL does not end, as one in a call of a driver, is named, and Run returns.
func TestARankThatDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := Job{Ranks: 2, First: 4, Grace: time.Second}
		j.setDefaults()
		ctx, cancel := context.WithCancel(t.Context())
		ends, began := make(chan rankEnd, 2), time.Now()
		ends <- rankEnd{rank: 4}
		cancel()
		failures, err := j.awaitEnds(ctx, ends)
		if !errors.Is(err, ErrUnended) || !strings.Contains(err.Error(), "ranks [5]") || len(failures) > 0 {
			t.Errorf("got %v, %v, want that rank 5 does not end", failures, err)
		}
		if waited := time.Since(began); waited != j.Grace+killLimit {
			t.Errorf("waited %v, want %v", waited, j.Grace+killLimit)
		}
	})
}

// A process that a rank has left, and that holds its output, does not make the rank fail.
func TestARankThatLeavesAProcess(t *testing.T) {
	var out bytes.Buffer
	j := job(`sleep 1000 & echo done`, 1, &out)
	j.Grace = 10 * time.Millisecond
	if err := Run(context.Background(), j); err != nil || out.String() != "[0] done\n" {
		t.Errorf("got %v, wrote %q", err, out.String())
	}
}

// Each rank's end is reported once, after its last process.
func TestEndsAreReported(t *testing.T) {
	var ended [2]atomic.Int32
	j := job(`exit $RANK`, 2, new(bytes.Buffer))
	j.Ended = func(rank int) { ended[rank].Add(1) }
	if err := Run(context.Background(), j); err == nil {
		t.Error("rank 1 does not fail")
	}
	for rank := range ended {
		if n := ended[rank].Load(); n != 1 {
			t.Errorf("the end of rank %d was reported %d times", rank, n)
		}
	}
}
