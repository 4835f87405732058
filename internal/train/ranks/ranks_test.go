package ranks

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/shm/memfd"
	"github.com/outboard-run/outboard/internal/train/collective"
)

// rank is a rank's end, in the test's process.
type rank struct {
	path   string
	conn   *ipc.Conn
	file   *os.File
	memory []byte
	server *Server // of a rank of several nodes
}

const memorySize = 1 << 16

func newMemory(t *testing.T) *os.File {
	t.Helper()
	f, err := memfd.New("rank", memorySize)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func dial(t *testing.T, path string) *rank {
	t.Helper()
	conn, err := ipc.Dial(context.Background(), path, ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go conn.Serve(func(m *ipc.Message) { m.Close() })
	r := &rank{path: path, conn: conn, file: newMemory(t)}
	if r.memory, err = unix.Mmap(int(r.file.Fd()), 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(r.memory) })
	return r
}

func (r *rank) request(kind string, body any, files ...*os.File) error {
	m, err := r.conn.Call(context.Background(), kind, body, files...)
	if err == nil {
		m.Close()
	}
	return err
}

// start returns the joined ranks of a server.
func start(t *testing.T, n int) []*rank {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ranks.sock")
	s, err := Serve(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	all := make([]*rank, n)
	for i := range all {
		all[i] = dial(t, path)
		if err := all[i].request("join", map[string]any{"group": "g", "rank": i, "size": n}); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// A process that the job's host refuses is not served.
func TestRefusedProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ranks.sock")
	s, err := Serve(path, Options{Refuses: func(pid int) bool { return pid == os.Getpid() }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := dial(t, path).request("join", map[string]any{"group": "g", "rank": 0, "size": 1}); err == nil {
		t.Error("it has joined a group")
	}
}

func allReduce(count int, site string) map[string]any {
	return map[string]any{
		"operation": collective.AllReduce, "element": collective.Int64, "reduction": collective.Sum, "count": count, "offset": 64, "site": site,
	}
}

// together makes a request of all ranks at once and returns their errors.
func together(all []*rank, request func(i int, r *rank) error) []error {
	in := make([]chan error, len(all))
	for i, r := range all {
		in[i] = make(chan error, 1)
		go func() { in[i] <- request(i, r) }()
	}
	got := make([]error, len(all))
	for i := range in {
		got[i] = <-in[i]
	}
	return got
}

func TestRanksShareTheirSum(t *testing.T) {
	all := start(t, 3)
	for round := range 3 {
		for i, r := range all {
			binary.NativeEndian.PutUint64(r.memory[64:], uint64(100*round+i))
		}
		for i, err := range together(all, func(i int, r *rank) error {
			if round == 0 {
				return r.request("call", allReduce(1, "train.py:1"), r.file)
			}
			return r.request("call", allReduce(1, "train.py:1"))
		}) {
			if got := binary.NativeEndian.Uint64(all[i].memory[64:]); err != nil || got != uint64(300*round+3) {
				t.Errorf("round %d: rank %d has %d (%v), want %d", round, i, got, err, 300*round+3)
			}
		}
	}
}

func TestRanksSendToEachOther(t *testing.T) {
	all := start(t, 2)
	copy(all[0].memory, "hello")
	for i, err := range together(all, func(i int, r *rank) error {
		if i == 0 {
			return r.request("send", map[string]any{"peer": 1, "tag": 7, "offset": 0, "bytes": 5}, r.file)
		}
		return r.request("receive", map[string]any{"peer": 0, "tag": 7, "offset": 8, "bytes": 5}, r.file)
	}) {
		if err != nil {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if got := string(all[1].memory[8:13]); got != "hello" {
		t.Errorf("rank 1 received %q", got)
	}
}

// Ranks that disagree on the size of a message get both call sites.
func TestSizesOfMessages(t *testing.T) {
	all := start(t, 2)
	for i, err := range together(all, func(i int, r *rank) error {
		kind := []string{"send", "receive"}[i]
		return r.request(kind, map[string]any{"peer": 1 - i, "bytes": 8 + 4*i, "site": fmt.Sprint("train.py:", i+1)}, r.file)
	}) {
		const want = "rank 0 sends 8 bytes at train.py:1 to rank 1, which expects 12 at train.py:2"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rank %d: %v, want %q", i, err, want)
		}
	}
}

// joinForMessages returns a connection for the messages of a rank that has joined.
func (r *rank) joinForMessages(t *testing.T, number int) (*rank, error) {
	t.Helper()
	m := dial(t, r.path)
	return m, m.request("join", map[string]any{"group": "g", "rank": number, "messages": true})
}

// Messages have a connection of their own, on which several are in progress: ranks may send before
// they receive, and receive in any order.
func TestMessagesInProgress(t *testing.T) {
	all := start(t, 2)
	var wait sync.WaitGroup
	var errs [8]error
	begin := func(i int, m *rank, kind string, body map[string]any, files ...*os.File) {
		wait.Go(func() { errs[i] = m.request(kind, body, files...) })
	}
	messages := make([]*rank, 2)
	for i := range all {
		var err error
		if messages[i], err = all[i].joinForMessages(t, i); err != nil {
			t.Fatal(err)
		}
		messages[i].memory[0], messages[i].memory[1] = byte(10+i), byte(20+i)
		if err := messages[i].request("call", allReduce(1, ""), messages[i].file); err == nil {
			t.Error("a collective was made on a connection for messages")
		}
	}
	for i, m := range messages {
		begin(4*i, m, "receive", map[string]any{"peer": 1 - i, "tag": 2, "offset": 8, "bytes": 1})
		begin(4*i+1, m, "receive", map[string]any{"peer": 1 - i, "tag": 1, "offset": 9, "bytes": 1})
		begin(4*i+2, m, "send", map[string]any{"peer": 1 - i, "tag": 1, "offset": 0, "bytes": 1})
		begin(4*i+3, m, "send", map[string]any{"peer": 1 - i, "tag": 2, "offset": 1, "bytes": 1})
	}
	wait.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("message %d: %v", i, err)
		}
	}
	for i, m := range messages {
		if m.memory[9] != byte(11-i) || m.memory[8] != byte(21-i) {
			t.Errorf("rank %d has received %v", i, m.memory[8:10])
		}
	}
}

// The end of a connection for messages is no loss, unless a message is in progress.
func TestEndOfAConnectionForMessages(t *testing.T) {
	all := start(t, 2)
	if _, err := all[0].joinForMessages(t, 2); err == nil {
		t.Error("a rank that has not joined has a connection for messages")
	}
	m, err := all[0].joinForMessages(t, 0)
	if err != nil {
		t.Fatal(err)
	}
	m.conn.Close()
	barrier := func(_ int, r *rank) error { return r.request("call", map[string]any{"operation": collective.Barrier}) }
	for i, err := range together(all, barrier) {
		if err != nil {
			t.Errorf("rank %d, after an idle connection has ended: %v", i, err)
		}
	}
	if m, err = all[0].joinForMessages(t, 0); err != nil {
		t.Fatal(err)
	}
	if err := m.conn.Send("send", map[string]any{"peer": 1, "bytes": 1}, m.file); err != nil {
		t.Fatal(err)
	}
	// Requests of a connection are handled in order: when this one has been refused, the message waits.
	if err := m.request("send", map[string]any{"peer": 0, "bytes": 1}); err == nil {
		t.Error("a rank has sent itself a message")
	}
	m.conn.Close()
	err = all[1].request("receive", map[string]any{"peer": 0, "tag": 7, "bytes": 1}, all[1].file)
	if err == nil || !strings.Contains(err.Error(), "rank 0 is lost") {
		t.Errorf("%v, want that rank 0 is lost", err)
	}
}

// Ranks exchange messages after another one has left, which ends the messages that wait for it and the
// calls of all.
func TestMessagesAfterARankHasLeft(t *testing.T) {
	for name, nodes := range map[string][]int{"one node": {0, 0, 0, 0}, "two nodes": {0, 0, 0, 1}} {
		t.Run(name, func(t *testing.T) {
			all, _ := startNodes(t, nodes)
			waiting := make(chan error, 1)
			go func() {
				waiting <- all[1].request("receive", map[string]any{"peer": 2, "bytes": 8}, all[1].file)
			}()
			all[2].conn.Close()
			if err := <-waiting; err == nil || !strings.Contains(err.Error(), "rank 2") {
				t.Errorf("a message of rank 2: %v, want that it is lost", err)
			}
			for i, err := range together([]*rank{all[0], all[1], all[3]}, func(i int, r *rank) error {
				if i == 0 {
					return r.request("receive", map[string]any{"peer": 3, "bytes": 8}, r.file)
				}
				if i == 1 {
					return r.request("send", map[string]any{"peer": 3, "bytes": 8})
				}
				if err := r.request("receive", map[string]any{"peer": 1, "bytes": 8}, r.file); err != nil {
					return err
				}
				return r.request("send", map[string]any{"peer": 0, "bytes": 8})
			}) {
				if err != nil {
					t.Errorf("message %d after the end of rank 2: %v", i, err)
				}
			}
			for kind, body := range map[string]map[string]any{"call": {"operation": collective.Barrier}, "send": {"peer": 2, "bytes": 8}} {
				if err := all[0].request(kind, body); err == nil || !strings.Contains(err.Error(), "rank 2 has left") {
					t.Errorf("%s: %v, want that rank 2 has left", kind, err)
				}
			}
		})
	}
}

func TestRanksThatDisagreeGetBothCallSites(t *testing.T) {
	all := start(t, 2)
	for i, err := range together(all, func(i int, r *rank) error {
		return r.request("call", allReduce(1+i, []string{"train.py:10", "train.py:12"}[i]), r.file)
	}) {
		if err == nil || !strings.Contains(err.Error(), "train.py:10") || !strings.Contains(err.Error(), "train.py:12") {
			t.Errorf("rank %d: %v, want both call sites", i, err)
		}
	}
}

func TestRanksLearnThatOneIsLost(t *testing.T) {
	all := start(t, 3)
	for i, err := range together(all, func(i int, r *rank) error {
		if i == 2 {
			return r.conn.Close()
		}
		return r.request("call", allReduce(1, ""), r.file)
	}) {
		if i != 2 && (err == nil || !strings.Contains(err.Error(), "rank 2")) {
			t.Errorf("rank %d: %v, want that rank 2 is lost", i, err)
		}
	}
}

// A rank's process may have failed because of those that left before it.
func TestProcessesThatLeftBefore(t *testing.T) {
	var s Server
	for _, pid := range []int{12, 10, 12, 11} { // 12 has left two groups.
		s.noteLeft(pid)
	}
	for pid, want := range map[int]string{12: "[]", 10: "[12]", 11: "[12 10]", 13: "[12 10 11]"} {
		if got := fmt.Sprint(s.LeftBefore(pid)); got != want {
			t.Errorf("before %d: %s, want %s", pid, got, want)
		}
	}
}

func TestHostileRequestsAreRefused(t *testing.T) {
	r := start(t, 1)[0]
	sealed := newMemory(t)
	unsealed, err := os.Create(t.TempDir() + "/memory")
	if err != nil {
		t.Fatal(err)
	}
	defer unsealed.Close()
	for want, try := range map[string]func() error{
		"sealed":        func() error { return r.request("call", allReduce(1, ""), unsealed) },
		"bytes 64 to":   func() error { return r.request("call", allReduce(memorySize, ""), sealed) },
		"elements":      func() error { return r.request("call", allReduce(-1, ""), sealed) },
		"rank 0 of 1":   func() error { return r.request("send", map[string]any{"peer": 0}, sealed) },
		"has joined":    func() error { return r.request("join", map[string]any{"group": "g", "rank": 0, "size": 1}) },
		"unknown reque": func() error { return r.request("look", nil) },
	} {
		if err := try(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	stranger := dial(t, r.path)
	if err := stranger.request("call", allReduce(1, "")); err == nil || !strings.Contains(err.Error(), "must be join") {
		t.Errorf("a call before join: %v", err)
	}
	if err := stranger.request("join", map[string]any{"group": "g", "rank": 0, "size": 1}); err == nil || !strings.Contains(err.Error(), "joined already") {
		t.Errorf("a second rank 0: %v", err)
	}
}

// A rank reads bytes of the dataset into its memory, without a group; what is refused says why.
func TestRanksReadTheDataset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ranks")
	read := func(_ context.Context, name string, at int64, buf []byte, next []string) error {
		if name != "digits" || at != 3 || len(next) != 1 || next[0] != "letters" {
			return fmt.Errorf("file %s from %d, then %q", name, at, next)
		}
		copy(buf, "content")
		return nil
	}
	s, err := Serve(path, Options{Read: read})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := dial(t, path)
	body := map[string]any{"name": "digits", "at": 3, "offset": 8, "bytes": 7, "next": []string{"letters"}}
	if err := r.request("read", body, r.file); err != nil || string(r.memory[8:16]) != "content\x00" {
		t.Errorf("%v, read %q", err, r.memory[8:16])
	}
	body["bytes"] = memorySize
	if err := r.request("read", body); err == nil || !strings.Contains(err.Error(), "bytes 8 to") {
		t.Errorf("%v, want that it does not fit into the memory", err)
	}
}

// A rank that leaves ends its reads: the server waits for none that hangs.
func TestReadsEndWithTheirRank(t *testing.T) {
	path, begun := filepath.Join(t.TempDir(), "ranks"), make(chan struct{})
	s, err := Serve(path, Options{Read: func(ctx context.Context, _ string, _ int64, _ []byte, _ []string) error {
		close(begun)
		<-ctx.Done()
		return ctx.Err()
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := dial(t, path)
	go func() {
		<-begun
		_ = r.conn.Close()
	}()
	if err := r.request("read", map[string]any{"name": "a", "bytes": 1}, r.file); err == nil {
		t.Error("the read has ended without an error")
	}
}

// A rank that calls without waiting for others, in a group of many, does not take the node's memory:
// what waits is bounded for the job, and free again when the rank is gone.
func TestWaitingCallsShareABound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ranks")
	s, err := Serve(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	closeServer := sync.OnceValue(s.Close)
	defer closeServer()
	r := dial(t, path)
	if err := r.request("join", map[string]any{"group": "g", "rank": 0, "size": maxRanks}); err != nil {
		t.Fatal(err)
	}
	if err := r.request("call", allReduce(memorySize, ""), r.file); err == nil {
		t.Error("a call beyond the memory was accepted") // It has shared the memory.
	}
	const calls = maxRequests/(maxRanks*pointerBytes) + 1
	refused := make(chan error, calls)
	for range calls {
		go func() { refused <- r.request("call", allReduce(1, "")) }()
	}
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "64MiB") {
		t.Errorf("%d calls that no other rank makes: %v", calls, err)
	}
	_ = r.conn.Close()
	for range calls - 1 {
		<-refused
	}
	if err := closeServer(); err != nil {
		t.Error(err)
	}
	if n := s.held.requests.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}

// A rank has one checkpoint saved at a time, so it can't occupy the node by many at once.
func TestOneCheckpointOfARankIsSavedAtATime(t *testing.T) {
	path, begun, end := filepath.Join(t.TempDir(), "ranks"), make(chan struct{}, 2), make(chan struct{})
	s, err := Serve(path, Options{Checkpoint: func(context.Context, *os.File, int) error {
		begun <- struct{}{}
		<-end
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r, first := dial(t, path), make(chan error, 1)
	save := func() error { return r.request("checkpoint", map[string]any{"number": 1}, r.file) }
	go func() { first <- save() }()
	<-begun
	if err := save(); err == nil || !strings.Contains(err.Error(), "is being saved") {
		t.Errorf("a second one beside the first: %v", err)
	}
	close(end)
	if err := <-first; err != nil {
		t.Errorf("the first one: %v", err)
	}
	if err := save(); err != nil {
		t.Errorf("one after the first: %v", err)
	}
}

// A profile is that of a rank of this node, and of a job that wants one.
func TestProfilesOfOtherRanksAreRefused(t *testing.T) {
	path, got := filepath.Join(t.TempDir(), "ranks"), make(chan int, 8) // room for those that must not arrive
	s, err := Serve(path, Options{FirstRank: 2, Ranks: 2, Profile: func(_ context.Context, _ *os.File, rank int) error {
		got <- rank
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := dial(t, path)
	for rank, accepted := range map[int]bool{1: false, 2: true, 3: true, 4: false, -1: false} {
		err := r.request("profile", map[string]any{"rank": rank}, r.file)
		if accepted != (err == nil) {
			t.Errorf("rank %d: %v", rank, err)
		}
		if accepted && err == nil {
			if from := <-got; from != rank {
				t.Errorf("the profile of rank %d was kept as that of rank %d", rank, from)
			}
		}
	}
	if err := r.request("profile", map[string]any{"rank": 2}); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("without a file: %v", err)
	}
	other := filepath.Join(t.TempDir(), "others")
	unwanted, err := Serve(other, Options{Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer unwanted.Close()
	if r := dial(t, other); r.request("profile", map[string]any{"rank": 0}, r.file) == nil {
		t.Error("a job without --profile has got a profile")
	}
}

// However many connections a rank opens, few of its reads hold a part of the dataset at once; the
// others wait for those.
func TestReadsOfAllConnectionsAreBounded(t *testing.T) {
	var now, most atomic.Int32
	path, begun, end := filepath.Join(t.TempDir(), "ranks"), make(chan struct{}, 2*maxServerReads), make(chan struct{})
	s, err := Serve(path, Options{Read: func(ctx context.Context, _ string, _ int64, _ []byte, _ []string) error {
		n := now.Add(1)
		defer now.Add(-1)
		for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		begun <- struct{}{}
		<-end
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	answers := make(chan error, 2*maxServerReads)
	for range 2 * maxServerReads / maxReads {
		r := dial(t, path)
		if err := r.request("read", map[string]any{"bytes": -1}, r.file); err == nil {
			t.Error("a read of less than nothing was accepted")
		}
		for range maxReads {
			go func() { answers <- r.request("read", map[string]any{"name": "a", "bytes": 1}) }()
		}
	}
	for range maxServerReads {
		<-begun
	}
	close(end)
	for range 2 * maxServerReads {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if n := most.Load(); n > maxServerReads {
		t.Errorf("%d reads were carried out at once", n)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n := s.held.requests.Load(); n != 0 {
		t.Errorf("%d bytes are still counted", n)
	}
}
