package ranks

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
)

// limited returns two joined ranks of a server whose ranks have a time limit.
func limited(t *testing.T) (*Server, []*rank) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ranks.sock")
	s, err := Serve(path, Options{StageLimit: time.Minute, Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	all := []*rank{dial(t, path), dial(t, path)}
	for i, r := range all {
		if err := r.request("join", map[string]any{"group": "g", "rank": i, "size": 2}); err != nil {
			t.Fatal(err)
		}
	}
	return s, all
}

// Another process of a rank joins its group again. What other ranks have sent and called meanwhile
// waits for it.
func TestRankContinuesInAnotherProcess(t *testing.T) {
	s, all := limited(t)
	if err := all[1].request("detach", nil); err != nil {
		t.Fatal(err)
	}
	state, err := ipc.NewFile("state", []byte("weights"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	if err := all[1].request("suspend", map[string]any{"rank": 1}, state); err != nil {
		t.Fatal(err)
	}
	if !s.Continues(1) || s.Continues(1) || s.Continues(0) {
		t.Error("rank 1 alone continues, once")
	}
	all[1].conn.Close()

	copy(all[0].memory[8:], "activation")
	sent, summed := make(chan error, 1), make(chan error, 1)
	go func() {
		sent <- all[0].request("send", map[string]any{"peer": 1, "offset": 8, "bytes": 10}, all[0].file)
		binary.NativeEndian.PutUint64(all[0].memory[64:], 30)
		summed <- all[0].request("call", allReduce(1, ""))
	}()
	next := dial(t, all[1].path)
	checkState(t, next, "weights")
	if err := next.request("join", map[string]any{"group": "g", "rank": 1, "size": 2}); err != nil {
		t.Fatal(err)
	}
	if err := next.request("receive", map[string]any{"peer": 0, "offset": 8, "bytes": 10}, next.file); err != nil || !bytes.HasPrefix(next.memory[8:], []byte("activation")) {
		t.Errorf("%v, received %q", err, next.memory[8:18])
	}
	binary.NativeEndian.PutUint64(next.memory[64:], 12)
	if err := next.request("call", allReduce(1, "")); err != nil || binary.NativeEndian.Uint64(next.memory[64:]) != 42 {
		t.Errorf("%v, the sum is %d", err, binary.NativeEndian.Uint64(next.memory[64:]))
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
	if err := <-summed; err != nil {
		t.Error(err)
	}
}

// checkState fetches the state of rank 1.
func checkState(t *testing.T, r *rank, want string) {
	t.Helper()
	m, err := r.conn.Call(context.Background(), "resume", map[string]any{"rank": 1})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	f := m.File()
	if f == nil {
		t.Fatal("the state has no file")
	}
	defer f.Close()
	got, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
	if err != nil || string(got) != want {
		t.Errorf("%q, %v: want %q", got, err, want)
	}
}

// newState returns the file of a state.
func newState(t *testing.T, text string) *os.File {
	t.Helper()
	f, err := ipc.NewFile("state", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// Ranks that may continue on other nodes ask for it, and leave their states with their servers. Those
// of the next attempt give the states to the ranks' first processes.
func TestStatesMoveToOtherServers(t *testing.T) {
	dir := t.TempDir()
	expired, kept := make(chan []int, 1), make(chan string, 1)
	elsewhere, err := Serve(filepath.Join(dir, "first"), Options{
		StageLimit: time.Minute, Ranks: 2,
		Elsewhere: func(_ context.Context, ranks []int) (bool, error) {
			expired <- ranks
			return true, nil
		},
		Moved: func(_ context.Context, f *os.File, rank int) error {
			text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<20))
			kept <- fmt.Sprint(rank, " ", string(text))
			return err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { elsewhere.Close() })
	r := dial(t, filepath.Join(dir, "first"))
	m, err := r.conn.Call(t.Context(), "elsewhere", map[string]any{"expired": []int{1}})
	if err != nil {
		t.Fatal(err)
	}
	var answer moving
	if err := m.Decode(&answer); err != nil || !answer.Moves {
		t.Errorf("%v, moves: %v, want that it moves", err, answer.Moves)
	}
	if ranks := <-expired; !slices.Equal(ranks, []int{1}) {
		t.Errorf("the time of ranks %v is over, want rank 1", ranks)
	}
	if err := r.request("suspend", map[string]any{"rank": 1, "moves": true}, newState(t, "weights")); err != nil {
		t.Fatal(err)
	}
	if text := <-kept; text != "1 weights" {
		t.Errorf("kept %q, want the state of rank 1", text)
	}
	if elsewhere.Continues(1) {
		t.Error("rank 1 continues here, too")
	}

	next, err := Serve(filepath.Join(dir, "next"), Options{StageLimit: time.Minute, Ranks: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { next.Close() })
	file, err := os.CreateTemp(dir, "state") // The server closes it.
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("weights"); err != nil {
		t.Fatal(err)
	}
	next.RestoreState(1, file)
	r = dial(t, filepath.Join(dir, "next"))
	if checkState(t, r, "weights"); next.Continues(1) {
		t.Error("rank 1 continues, whose first process has not ended")
	}
	if err := r.request("suspend", map[string]any{"rank": 1}, newState(t, "later weights")); err != nil {
		t.Fatal(err)
	}
	if checkState(t, r, "later weights"); !next.Continues(1) {
		t.Error("rank 1 does not continue")
	}
}

// A server whose ranks stay on its node refuses what belongs to moves.
func TestMovesAreRefusedWhereRanksStay(t *testing.T) {
	_, all := limited(t)
	for kind, body := range map[string]map[string]any{
		"elsewhere": {"expired": []int{1}},
		"suspend":   {"rank": 1, "moves": true},
	} {
		err := all[1].request(kind, body, newState(t, "weights"))
		if outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), "elsewhere") {
			t.Errorf("%s: got %v, want that it is invalid, and the flag", kind, err)
		}
	}
}

// The node would read and write memory that is not mapped any more.
func TestDetachIsRefusedDuringCallsAndMessages(t *testing.T) {
	for name, request := range map[string]func(r *rank) error{
		"call":    func(r *rank) error { return r.conn.Send("call", allReduce(1, ""), r.file) },
		"message": func(r *rank) error { return r.conn.Send("receive", map[string]any{"peer": 0, "bytes": 8}, r.file) },
	} {
		t.Run(name, func(t *testing.T) {
			_, all := limited(t)
			if err := request(all[1]); err != nil {
				t.Fatal(err)
			}
			if err := all[1].request("detach", nil); outboard.KindOf(err) != outboard.Conflict {
				t.Errorf("got %v, want a conflict", err)
			}
		})
	}
}

func TestStatesOfOtherRanksAreRefused(t *testing.T) {
	s, all := limited(t)
	state, err := ipc.NewFile("state", []byte("weights"))
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	for _, rank := range []int{-1, 2} {
		if err := all[1].request("suspend", map[string]any{"rank": rank}, state); outboard.KindOf(err) != outboard.Invalid || s.Continues(rank) {
			t.Errorf("rank %d: got %v, want that it is invalid", rank, err)
		}
	}
	unlimited := start(t, 2)
	for _, kind := range []string{"suspend", "detach"} {
		if err := unlimited[0].request(kind, nil, state); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s without a limit: got %v", kind, err)
		}
	}
}

// A rank that ends without having joined, or joined again, ends the calls that wait for it.
func TestCallsEndWithARankThatNeverJoins(t *testing.T) {
	for name, joined := range map[string]bool{"never joined": false, "did not join again": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ranks.sock")
			s, err := Serve(path, Options{StageLimit: time.Minute, Ranks: 2})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			first, second := dial(t, path), dial(t, path)
			if joined {
				if err := errors.Join(second.request("join", map[string]any{"group": "g", "rank": 1, "size": 2}), second.request("detach", nil)); err != nil {
					t.Fatal(err)
				}
			}
			if err := first.request("join", map[string]any{"group": "g", "rank": 0, "size": 2}); err != nil {
				t.Fatal(err)
			}
			called := make(chan error, 1)
			go func() { called <- first.request("call", allReduce(1, ""), first.file) }()
			s.Ended(1)
			if err := <-called; err == nil || !strings.Contains(err.Error(), "rank 1 has not joined") {
				t.Errorf("got %v, want the rank that is missing", err)
			}
			late := dial(t, path)
			if err := late.request("join", map[string]any{"group": "later", "rank": 0, "size": 2}); err != nil {
				t.Fatal(err)
			}
			if err := late.request("call", allReduce(1, ""), late.file); err == nil {
				t.Error("a group that can't be complete made a call")
			}
		})
	}
}
