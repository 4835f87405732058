package job

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/data"
)

// connectNodes returns the ends of a connection between a manager and a node.
func connectNodes(t *testing.T) (manager, node *framed.Conn) {
	t.Helper()
	a, b := net.Pipe()
	manager, node = framed.Client(a, framed.Options{}), framed.Server(b, framed.Options{})
	t.Cleanup(func() {
		manager.Close()
		node.Close()
	})
	return manager, node
}

// openRun returns the ends of a stream between a manager and a node.
func openRun(t *testing.T) (manager, node *framed.Stream) {
	t.Helper()
	a, b := connectNodes(t)
	manager, err := a.Open(t.Context(), methodRun, nil)
	if err != nil {
		t.Fatal(err)
	}
	manager.Flush()
	if node, err = b.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	return manager, node
}

// newActive returns a job of a manager without a pool.
func newActive(t *testing.T, o Options) *activeJob {
	t.Helper()
	l, err := openLines(t.TempDir(), "job-abc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	j := client.Job{ID: "job-abc", Attempt: 1, World: 1, Spec: client.JobSpec{Ranks: 1, PerDevice: 1, Args: []string{"x"}}}
	m := &Manager{opts: o}
	a := &activeJob{manager: m, lines: l, excluded: make(map[outboard.NodeID]exclusion), record: m.record(&j)}
	return a
}

// stalledChunks has chunks that never arrive.
type stalledChunks struct{ data.Chunks }

func (stalledChunks) Get(ctx context.Context, _ string) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A node that accepts a request, and does not read it, does not keep a job from ending.
func TestStartEndsWithItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager, _ := connectNodes(t)
		dial := func(context.Context, outboard.NodeID) (*framed.Conn, error) { return manager, nil }
		a := newActive(t, Options{Peers: &Peers{Dial: dial}})
		a.job.Spec.Env = map[string]string{"LONG": strings.Repeat("x", 1<<20)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		n := &nodeRun{node: "east", count: 1}
		began := time.Now()
		if err := a.startNode(ctx, n, []*nodeRun{n}, collective.Link{}); err == nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %v, want an error at the end of the job", err, time.Since(began))
		}
	})
}

// A node that does not read the answers to its reports does not keep an attempt from ending.
func TestStopOfANodeThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, _ := openRun(t)
		n := &nodeRun{node: "east", stream: stream, out: &writer{out: stream}}
		if _, err := stream.Write(make([]byte, firstWindow)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		newActive(t, Options{}).stopAll([]*nodeRun{n})
		if waited := time.Since(began); waited != stopLimit {
			t.Errorf("it took %v, want %v", waited, stopLimit)
		}
	})
}

// firstWindow is the number of bytes that a stream sends to a node that reads nothing.
const firstWindow = 256 << 10

// A node that reports the end of its ranks again and again does not keep an attempt from ending.
func TestSecondReportOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, node := openRun(t)
		a, out := newActive(t, Options{}), &writer{out: node}
		events := make(chan attemptEvent, 2)
		for range 10 {
			if err := out.send(message{Exited: &exited{Rank: -1}}); err != nil {
				t.Fatal(err)
			}
		}
		a.readReports(t.Context(), &nodeRun{node: "east", stream: stream}, events)
		failed, ended := 0, 0
		for range 2 {
			if e := <-events; e.exited != nil {
				ended++
			} else if outboard.KindOf(e.err) == outboard.Protocol {
				failed++
			}
		}
		if failed != 1 || ended != 1 {
			t.Errorf("%d ends and %d errors, want one of each", ended, failed)
		}
	})
}

// The failure of a rank does not wait for a checkpoint whose chunks do not arrive, and neither does
// the end of the attempt.
func TestFailureDoesNotWaitForACopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream, node := openRun(t)
		a, out := newActive(t, Options{Chunks: stalledChunks{}}), &writer{out: node}
		n := &nodeRun{node: "east", stream: stream, out: &writer{out: stream}}
		events, read := make(chan attemptEvent, 2), make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			a.readReports(ctx, n, events)
			close(read)
		}()
		for _, m := range []message{{Saved: &saved{Step: 1, Digest: "sha256:x"}}, {Exited: &exited{Rank: 0, Status: 7}}} {
			if err := out.send(m); err != nil {
				t.Fatal(err)
			}
		}
		if e := <-events; e.exited == nil || e.exited.Status != 7 {
			t.Errorf("got %+v, want the failure", e)
		}
		cancel()
		resetStreams([]*nodeRun{n})
		<-read
	})
}

// A node whose manager is lost, or stops the ranks, while it prepares them stops that.
func TestPreparationEndsWithItsManager(t *testing.T) {
	for name, end := range map[string]func(*framed.Stream){
		"stopped": func(s *framed.Stream) { _ = (&writer{out: s}).send(message{Stop: &stop{}}) },
		"lost":    func(s *framed.Stream) { s.Reset(errors.New("it has ended")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			synctest.Test(t, func(t *testing.T) {
				manager, node := openRun(t)
				h := NewHost(HostOptions{Mode: ModeTrusted, Chunks: stalledChunks{}, Python: func(string) error { return nil }})
				r := &run{
					host: h, key: key{"east", "job-abc", 1}, out: &writer{out: node}, leases: []outboard.Lease{{Device: "east/0"}},
					start: &start{World: 1, Count: 1, PerDevice: 1, Nodes: []outboard.NodeID{"east"}, Args: []string{"true"}, Checkpoint: "sha256:x"},
				}
				ended := make(chan error)
				go func() { ended <- r.serve(t.Context(), node) }()
				synctest.Wait()
				end(manager)
				if err := <-ended; (err == nil) != (name == "stopped") {
					t.Errorf("got %v", err)
				}
				if name == "stopped" {
					if m, err := receive(manager); err != nil || m.Exited == nil || m.Exited.Rank != -1 {
						t.Errorf("the manager got %+v (%v), want the end", m, err)
					}
				}
			})
		})
	}
}

// silentStore is a store of chunks that does not answer.
type silentStore struct{ data.Chunks }

func (silentStore) Get(context.Context, string) ([]byte, error) {
	return nil, outboard.Errorf(outboard.Unreachable, "object x", "no answer, in 8 attempts")
}

// A node that can't read the job's data is not called lost, but the ranks start again.
func TestNodeWithoutItsStoreIsNotLost(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	manager, node := openRun(t)
	r := &run{
		host: NewHost(HostOptions{Mode: ModeTrusted, Chunks: silentStore{}, Python: func(string) error { return nil }}),
		key:  key{"east", "job-abc", 1}, out: &writer{out: node}, leases: []outboard.Lease{{Device: "east/0"}},
		start: &start{World: 1, Count: 1, PerDevice: 1, Nodes: []outboard.NodeID{"east"}, Args: []string{"true"}, Checkpoint: "sha256:x"},
	}
	node.Reset(r.serve(t.Context(), node))
	_, err := receive(manager)
	end := refusalOr(attemptEvent{from: &nodeRun{node: "east"}, err: err})
	if want := "node east could not start its ranks (restore the job's checkpoint"; !strings.HasPrefix(end.Error(), want) || !isLoss(end) {
		t.Errorf("got %q (a loss: %v), want %q and a loss", end, isLoss(end), want)
	}
}

// A refusal, such as that of a node whose disk is full, names the node.
func TestRefusalNamesItsNode(t *testing.T) {
	err := outboard.Errorf(outboard.Exhausted, methodRun, "%w", errors.New("free space on the disk"))
	end := refusalOr(attemptEvent{from: &nodeRun{node: "east"}, err: err})
	if want := "node east: free space on the disk"; end.Error() != want || isLoss(end) || outboard.KindOf(end) != outboard.Exhausted {
		t.Errorf("got %q (a loss: %v), want %q and no loss", end, isLoss(end), want)
	}
}

// A manager that does not read the lines of ranks does not keep them, and their node, from ending.
func TestLinesOfAManagerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, node := openRun(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer resetLate(ctx, node)()
		sending, out := make(chan error), &writer{out: node}
		go func() {
			var err error
			for err == nil {
				err = out.send(message{Line: &line{Text: strings.Repeat("x", 1<<10)}})
			}
			sending <- err
		}()
		synctest.Wait()
		cancel()
		began := time.Now()
		if <-sending; time.Since(began) != stopLimit {
			t.Errorf("the line ended after %v, want %v", time.Since(began), stopLimit)
		}
	})
}

// A connection that arrives when the run ends is refused: nothing would close it.
func TestConnectionToARunThatHasEnded(t *testing.T) {
	m := newMesh(nil, key{"east", "job-abc", 1}, &start{Nodes: []outboard.NodeID{"east", "west"}, Node: 1})
	p := purpose{Job: "job-abc", Attempt: 1, From: 0, For: "group g"}
	if _, err := m.slot(p.From, p.For); err != nil {
		t.Fatal(err)
	}
	m.close()
	if err := m.accept(t.Context(), p, nil); err == nil {
		t.Error("the connection was accepted")
	}
}

// Connections that ranks have taken over do not count among those that none has asked for.
func TestConnectionsThatRanksHaveTaken(t *testing.T) {
	m := newMesh(nil, key{"east", "job-abc", 1}, &start{Nodes: []outboard.NodeID{"east", "west"}, Node: 1})
	for i := range maxSlots + 1 {
		near, far := net.Pipe()
		p := purpose{Job: "job-abc", Attempt: 1, For: fmt.Sprint("group ", i)}
		if err := m.accept(t.Context(), p, near); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		if got, err := m.Connect(t.Context(), p.From, p.For); err != nil || got != near {
			t.Fatalf("connection %d: %v, %v", i, got, err)
		}
		near.Close()
		far.Close()
	}
}

// A file of lines that can't be read ends the request that follows it.
func TestLinesThatCanNotBeRead(t *testing.T) {
	broken := errors.New("input/output error")
	r := &lineReader{in: bufio.NewReader(io.MultiReader(strings.NewReader("{\"text\":\"a\"}\ncut short\n{\"text\":\"b\"}\n"), iotest.ErrReader(broken)))}
	var lines []string
	err := r.emitAll(func(l client.JobLine) error {
		lines = append(lines, l.Text)
		return nil
	})
	if !errors.Is(err, broken) || strings.Join(lines, "") != "ab" {
		t.Errorf("got %q, %v", lines, err)
	}
}
