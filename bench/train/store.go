package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// storeName is the node of the rig with the object store, and storePort its port.
const (
	storeName = "store"
	storePort = "9000"
)

// startStore starts the object store of a rig and returns the URL of a bucket, and a function that
// ends the store.
func (b *bench) startStore(ctx context.Context, r *rig.Rig) (url string, end func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	n := r.Node(storeName)
	host, _, err := net.SplitHostPort(n.Addr)
	if err != nil {
		return "", nil, err
	}
	addr := net.JoinHostPort(host, storePort)
	ctx, cancel := context.WithCancel(ctx)
	cmd := n.Exec(ctx, self, storeArg, addr)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return "", nil, err
	}
	end = func() {
		cancel()
		_ = cmd.Wait() // It was killed.
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		end()
		return "", nil, fmt.Errorf("the object store did not start: %w", err)
	}
	return "s3://bench/?endpoint=http://" + addr, end, nil
}

// store measures sums through an object store, for ranks whose links are bounded: a process for
// each in a namespace of its own. The store's own link is not bounded.
func (b *bench) store(ctx context.Context) error {
	for _, n := range []int{4, 8, 16} {
		if err := b.sumThroughStore(ctx, n); err != nil {
			return fmt.Errorf("%d ranks: %w", n, err)
		}
	}
	return nil
}

func (b *bench) sumThroughStore(ctx context.Context, n int) error {
	const bits, size = 1e8, 8 << 20
	places := []rig.Spec{{Name: storeName, Bare: true}}
	for i := range n {
		places = append(places, rig.Spec{Name: fmt.Sprintf("rank%d", i), Bare: true})
	}
	r, err := rig.Start(ctx, rig.Options{Binary: b.binary, Dir: filepath.Join(b.Dir, "ranks"), Nodes: places})
	if err != nil {
		return err
	}
	defer r.Close()
	if !strings.Contains(r.Where(), "namespaces") {
		b.note("Sums through a store were not measured: they need network namespaces (root).")
		return nil
	}
	url, end, err := b.startStore(ctx, r)
	if err != nil {
		return err
	}
	defer end()
	all := storeRank{URL: url, Bytes: size, Rounds: b.Rounds(7, 2)}
	for _, p := range places[1:] {
		if err := r.Node(p.Name).Shape(ctx, bits, rig.SegmentBucketSize); err != nil {
			return err
		}
		host, _, err := net.SplitHostPort(r.Node(p.Name).Addr)
		if err != nil {
			return err
		}
		all.Hosts = append(all.Hosts, host)
	}
	t, err := runRanks(ctx, r, places[1:], all)
	if err != nil {
		return err
	}
	const transfer = size / (bits / 8)
	plain := (3 - 2/float64(n)) * transfer
	b.Row(paired.NewRow(fmt.Sprintf("all-reduce of 8 MiB through an object store, %d ranks at 100 Mbit/s, pipelined: time against 2s/w", n),
		"ms", "2s/w", milliseconds(t.Pipelined...), milliseconds(2*transfer), paired.Goal{MaxRatio: 1.05}).Because(storeReason))
	b.Row(paired.NewRow(fmt.Sprintf("the same, plain: time against 3s/w - 2s/(%dw)", n),
		"ms", "formula", milliseconds(t.Plain...), milliseconds(plain), paired.Goal{MinRatio: 0.95, MaxRatio: 1.05}).Because(storeReason))
	return nil
}

// storeReason is the reason why a sum through the store takes longer than its bytes on the links.
const storeReason = "all ranks and the store share the machine's cores, and each byte passes through the kernel's network four times: " +
	"16 ranks take 1.9 s of processor time for a call, and two cores have 2.7 s in 2s/w; " +
	"on a virtual clock both forms are within 5 % (TestTimesThroughAStore)"

// runRanks runs a process for each rank until all are done, and returns the times of rank 0.
func runRanks(ctx context.Context, r *rig.Rig, places []rig.Spec, all storeRank) (t storeTiming, err error) {
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inputs := make([]io.Closer, 0, len(places))
	timings := make([]storeTiming, len(places))
	var done, ended sync.WaitGroup
	failures := make([]error, len(places))
	for i, p := range places {
		all.Rank = i
		argument, err := json.Marshal(all)
		if err != nil {
			return t, err
		}
		cmd := r.Node(p.Name).Exec(ctx, self, rankArg, string(argument))
		problems := &strings.Builder{}
		cmd.Stderr = problems
		in, inErr := cmd.StdinPipe()
		out, outErr := cmd.StdoutPipe()
		if err := errors.Join(inErr, outErr); err != nil {
			return t, err
		}
		if err := cmd.Start(); err != nil {
			cancel()
			return t, err
		}
		inputs = append(inputs, in)
		done.Add(1)
		ended.Go(func() {
			err := json.NewDecoder(out).Decode(&timings[i])
			if err != nil {
				cancel() // A failed rank leaves the others waiting.
			}
			done.Done()
			_, _ = io.Copy(io.Discard, out)
			if waitErr := cmd.Wait(); waitErr != nil {
				failures[i] = fmt.Errorf("rank %d: %w: %s", i, waitErr, strings.TrimSpace(problems.String()))
			}
		})
	}
	done.Wait()
	for _, in := range inputs {
		_ = in.Close() // a rank that has failed has closed it
	}
	ended.Wait()
	return timings[0], errors.Join(failures...)
}
