package collective

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A lossyPath is a path in memory that loses datagrams.
type lossyPath struct {
	lose   func() bool
	out    chan<- []byte
	in     <-chan []byte
	closed chan struct{}
	once   sync.Once
}

func (p *lossyPath) Send(b []byte) error {
	if p.lose() {
		return nil
	}
	select {
	case p.out <- bytes.Clone(b):
	case <-p.closed:
	}
	return nil
}

func (p *lossyPath) Receive(buf []byte) (int, error) {
	select {
	case b := <-p.in:
		return copy(buf, b), nil
	case <-p.closed:
		return 0, net.ErrClosed
	}
}

func (p *lossyPath) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

// lossyPaths returns paths between all of n ranks. lose decides for each datagram of a rank.
func lossyPaths(n int, lose func(rank int) func() bool) [][]*Datagrams {
	streams, all := pipes(n), make([][]*Datagrams, n)
	ways := make(map[[2]int]chan []byte)
	for i := range n {
		for j := range n {
			ways[[2]int{i, j}] = make(chan []byte, 1<<14)
		}
	}
	for i := range all {
		all[i] = make([]*Datagrams, n)
		for j := range n {
			if i != j {
				path := &lossyPath{lose: lose(i), out: ways[[2]int{i, j}], in: ways[[2]int{j, i}], closed: make(chan struct{})}
				all[i][j] = &Datagrams{Path: path, Stream: streams[i][j]}
			}
		}
	}
	return all
}

// datagramGroups returns the ends of a group whose calls with a Loss use datagrams.
func datagramGroups(t *testing.T, n int, lose func(rank int) func() bool) []*Group {
	t.Helper()
	all, paths := make([]*Group, n), lossyPaths(n, lose)
	for rank, conns := range pipes(n) {
		var err error
		if all[rank], err = NewGroup(rank, conns, Options{Datagrams: paths[rank]}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { closeAll(all) })
	return all
}

const lossyChunks = 300 // of each rank's part

// sumChunks sums chunks of the values 1 to lossyChunks, times the rank's number plus one, and
// returns the ranks' buffers, which are equal.
func sumChunks(t *testing.T, all []*Group, loss int) [][]byte {
	t.Helper()
	n, perPart := len(all), lossyChunks*chunkSize/4
	var bufs [][]byte
	for rank := range n {
		b := words(4 * n * perPart)
		for i := range view[float32](b) {
			view[float32](b)[i] = float32((rank + 1) * (1 + i%perPart/(chunkSize/4)))
		}
		bufs = append(bufs, b)
	}
	c := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: n * perPart, Loss: loss}
	for range 2 { // Numbers of calls and steps are different in the second call.
		before := bytes.Clone(bufs[0])
		if err := errors.Join(everybody(all, func(g *Group) error { return g.Do(context.Background(), c, bufs[g.Rank()]) })...); err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(before, bufs[0]) {
			t.Error("the call has changed nothing")
		}
		for rank := range bufs {
			if !bytes.Equal(bufs[rank], bufs[0]) {
				t.Fatalf("ranks 0 and %d have different sums", rank)
			}
		}
	}
	return bufs
}

func never(int) func() bool { return func() bool { return false } }

// losing returns functions that lose a share of the datagrams.
func losing(share float64) func(rank int) func() bool {
	return func(rank int) func() bool {
		r := rand.New(rand.NewPCG(uint64(rank), 7))
		return func() bool { return r.Float64() < share }
	}
}

// The sums of calls over datagrams are those over streams, to the last bit, where nothing may be
// lost: a thousandth of the chunks is none.
func TestSumsByDatagrams(t *testing.T) {
	for _, n := range []int{2, 3} {
		got := sumChunks(t, datagramGroups(t, n, never), 1)
		want := sumChunks(t, groups(t, n, Options{}), 0)
		if !bytes.Equal(got[0], want[0]) {
			t.Errorf("%d ranks: the sums differ from those over streams", n)
		}
	}
}

// Of lost datagrams only the least important chunks stay lost, all others are repeated, and all
// ranks have the same sum.
func TestLostDatagrams(t *testing.T) {
	const ranks, loss = 3, 100
	all := datagramGroups(t, ranks, losing(0.3))
	want := sumChunks(t, groups(t, ranks, Options{}), 0)
	got := sumChunks(t, all, loss)
	for i, v := range view[float32](got[0]) {
		chunk := i / (chunkSize / 4) % lossyChunks
		if v != view[float32](want[0])[i] && chunk >= lossyChunks*loss/1000 {
			t.Fatalf("element %d of the important chunk %d is %v, want %v", i, chunk, v, view[float32](want[0])[i])
		}
	}
	var sum Losses
	for _, g := range all {
		l := g.Lost()
		sum.Dropped, sum.Offered, sum.Repeated = sum.Dropped+l.Dropped, sum.Offered+l.Offered, sum.Repeated+l.Repeated
	}
	// Two calls of two steps on each rank.
	if sum.Offered != ranks*2*2*lossyChunks || sum.Dropped == 0 || sum.Dropped > sum.Offered*loss/1000 || sum.Repeated == 0 {
		t.Errorf("got %+v", sum)
	}
}

// Where no datagram arrives, all chunks travel over the stream.
func TestNoDatagramArrives(t *testing.T) {
	for name, share := range map[string]float64{"none": 1, "few": 0.95} {
		t.Run(name, func(t *testing.T) {
			got := sumChunks(t, datagramGroups(t, 2, losing(share)), 1)
			want := sumChunks(t, groups(t, 2, Options{}), 0)
			if !bytes.Equal(got[0], want[0]) {
				t.Error("the sums differ from those over streams")
			}
		})
	}
}

// Messages that a rank may not send end the call.
func TestHostileMessagesBesideDatagrams(t *testing.T) {
	message := func(kind, length, number, step byte, payload ...byte) []byte {
		return append([]byte{kind, 0, 0, 0, length, 0, 0, 0, number, 0, 0, 0, 0, 0, 0, 0, step, 0, 0, 0}, payload...)
	}
	ready := message(pathReady, 0, 1, 0)
	for want, sent := range map[string][]byte{
		"kind 9":                                        message(9, 0, 1, 0),
		"with 1 bytes":                                  message(pathReady, 1, 1, 0, 0),
		"kind 5 with 4 bytes":                           message(pathChunk, 4, 1, 0, 0, 0, 0, 0),
		"of step 1 of call 2 in call 1":                 message(pathEnd, 4, 2, 1, 0, 0, 0, 0),
		"of step 2 of call 1 in call 1":                 message(pathDone, 4, 1, 2, 0, 0, 0, 0),
		"may lose 1 of 1 chunks":                        message(pathOptional, 1, 1, 0, 1),
		"2 bytes of chunks that may be":                 message(pathOptional, 2, 1, 0, 1, 1),
		"expects call 1 twice":                          slices.Concat(ready, ready),
		"has ended step 1 of call 1, which it does not": slices.Concat(ready, message(pathDone, 4, 1, 1, 0, 0, 0, 0)),
		"or lost 9 chunks":                              slices.Concat(ready, message(pathDone, 4, 1, 0, 9, 0, 0, 0)),
		"reported 9 of":                                 slices.Concat(ready, message(pathReport, reportHead, 1, 0, append([]byte{9}, make([]byte, reportHead-1)...)...)),
		"reported datagram 3, of those from 0 to 0":     slices.Concat(ready, message(pathReport, reportHead+4, 1, 0, append(make([]byte, reportHead), 3, 0, 0, 0)...)),
		"a report of 22 bytes":                          slices.Concat(ready, message(pathReport, reportHead+2, 1, 0, make([]byte, reportHead+2)...)),
	} {
		paths, conns := lossyPaths(2, never), pipes(2)
		g, err := NewGroup(0, conns[0], Options{Datagrams: paths[0]})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []net.Conn{conns[1][0], paths[1][0].Stream} {
			go func() { _, _ = io.Copy(io.Discard, c) }()
		}
		go func() { _, _ = paths[1][0].Stream.Write(sent) }()
		call := Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 8, Loss: 100}
		if err := g.Do(context.Background(), call, words(32)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
		g.Close()
	}
}

// A rank reports each lost datagram once: its chunk would otherwise be queued any number of times.
func TestRepeatedReports(t *testing.T) {
	for name, reports := range map[string][]report{
		"in a report":    {{before: 2, missing: []uint32{1, 1}}},
		"in the next":    {{before: 2, missing: []uint32{1}}, {before: 3, missing: []uint32{1}}},
		"in other order": {{before: 3, missing: []uint32{2, 0}}},
	} {
		g := datagramGroups(t, 2, never)[0]
		x := &execution{g: g, number: 1, size: 4, call: &Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 8 * chunkSize}, buf: words(32 * chunkSize)}
		c := newChunkSender(newDatagramSum(x, RingReduceScatter(0, 2, 8*chunkSize)), g.paths[1])
		for i := range 4 {
			c.steps[0].last[i], c.log = i, append(c.log, sentChunk{0, i})
		}
		var err error
		for i := range reports {
			if err == nil {
				err = c.processReport(&reports[i])
			}
		}
		if err == nil || len(c.again) > 1 {
			t.Errorf("%s: %v, and %d chunks are sent again", name, err, len(c.again))
		}
	}
}

// The rate at which chunks are sent depends on what other nodes report, and on the link that the
// job's node has named: a group that ends does not wait for it.
func TestSlowPaceEndsWithItsGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, began := make(chan struct{}), time.Now()
		time.AfterFunc(time.Second, func() { close(ended) })
		p := pacer{rate: 1e-3, began: began, sent: wireSize}
		p.wait(1e-3, ended)
		if waited := time.Since(began); waited != time.Second {
			t.Errorf("it took %v", waited)
		}
	})
}

// A rank that floods another one with messages that no call waits for ends the group.
func TestFloodBesideDatagrams(t *testing.T) {
	p := newChunkPath(new(Group), 1, &Datagrams{})
	for i := range maxPathMessages + 1 {
		if err := p.dispatch(pathMessage{kind: pathReady}); (err != nil) != (i == maxPathMessages) {
			t.Fatalf("message %d: %v", i, err)
		}
	}
}

// A call ends with its group although its stream beside the datagrams accepts nothing.
func TestCallEndsWithAFullStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths, conns := lossyPaths(2, never), pipes(2)
		go func() { _, _ = io.Copy(io.Discard, conns[1][0]) }()
		g, err := NewGroup(0, conns[0], Options{Datagrams: paths[0]})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			ended <- g.Do(t.Context(), Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 8, Loss: 100}, words(32))
		}()
		synctest.Wait()
		g.Close()
		if err := <-ended; err == nil {
			t.Error("the call succeeded")
		}
	})
}

// A chunk that arrives when its call has failed does not change the elements, which belong to the
// caller again.
func TestChunkAfterItsCall(t *testing.T) {
	paths, conns := lossyPaths(2, never), pipes(2)
	g, err := NewGroup(0, conns[0], Options{Datagrams: paths[0]})
	if err != nil {
		t.Fatal(err)
	}
	x := &execution{g: g, number: 1, size: 4, call: &Call{Operation: AllReduce, Element: Float32, Reduction: Sum, Count: 8}, buf: words(32)}
	g.Close()
	if err := x.datagramAllReduce(); err == nil {
		t.Error("the call of a closed group succeeded")
	}
	s := newDatagramSum(x, RingReduceScatter(0, 2, 8))
	late := chunk{number: 1, elements: words(16)}
	late.elements[0] = 1
	s.close()
	s.deliver(late)
	if x.buf[0] != 0 || x.buf[16] != 0 {
		t.Error("it has changed the elements")
	}
}

func FuzzChunks(f *testing.F) {
	f.Add(make([]byte, chunkHead+8))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 63})
	f.Fuzz(func(t *testing.T, b []byte) {
		x := &execution{g: &Group{n: 2}, number: 1, size: 4, call: &Call{Element: Float32, Count: chunkSize}, buf: words(4 * chunkSize)}
		s := newDatagramSum(x, RingReduceScatter(0, 2, chunkSize))
		p := &chunkPath{sum: s}
		aligned := words(len(b))[:0]
		aligned = append(aligned, b...)
		c, ok := parseChunk(aligned)
		if !ok {
			return
		}
		if again := c.append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x is written as %x", b, again)
		}
		p.deliver(c)
		p.deliver(c) // It counts once.
		if a := s.steps[0]; a.left < len(a.seen)-1 || a.left != a.important || s.arrived > 1 {
			t.Errorf("one datagram was counted as %d chunks and %d datagrams", len(a.seen)-a.left, s.arrived)
		}
	})
}

func FuzzReport(f *testing.F) {
	f.Add((&report{before: 7, arrived: 5, span: 9, queued: time.Millisecond, missing: []uint32{2, 6}}).append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := parseReport(b); err == nil && r.span > 0 && !bytes.Equal(r.append(nil), b) {
			t.Errorf("%x is %+v", b, r)
		}
	})
}

func FuzzPathMessage(f *testing.F) {
	f.Add([]byte{pathReport, 0, 0, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := readPathMessage(bytes.NewReader(b))
		if err == nil && (len(m.payload) > len(b)-pathHead || m.kind < pathReady || m.kind > pathDone) {
			t.Errorf("%+v of %x", m, b)
		}
	})
}
