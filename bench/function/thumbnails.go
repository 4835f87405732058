package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/examples/thumbnails/photo"
)

// thumbnails measures the example of that name: photographs through a workflow of four functions,
// beside a native program of the same code.
func (b *bench) thumbnails(ctx context.Context) error {
	a, err := b.example(ctx, "thumbnails")
	if err != nil {
		return err
	}
	n := b.Rounds(200, 12)
	album, err := b.newAlbum(ctx, n, 1024, 768)
	if err != nil {
		return err
	}
	return b.withStage(ctx, a, func(s *testNode) error {
		all, err := b.turns(ctx, b.Rounds(3, 1), album.byWorkflow(s), album.byProgram(runtime.NumCPU()), album.byProgram(1))
		if err != nil {
			return err
		}
		// "One native Go program" may mean either reference: both have the goal.
		const reference, plain = "native program on all cores", "native program, a photograph after the other"
		name := fmt.Sprintf("thumbnails of %d photographs by a workflow", n)
		b.Row(paired.NewRow(name, "s", reference, all[0].values, all[1].values, paired.Goal{MaxRatio: 2}).Because(slowWebAssembly))
		b.Row(paired.NewRow(name+": processor time", "s", reference, all[0].timePerTurn(), all[1].timePerTurn(), paired.Goal{}))
		b.Row(paired.NewRow(name, "s", plain, all[0].values, all[2].values, paired.Goal{MaxRatio: 2}))
		return nil
	})
}

const slowWebAssembly = "Both keep all cores busy. Nine tenths of the workflow's processor time are the functions' own code, which runs that much slower as WebAssembly; " +
	"a quarter of it are the engine's looks at the bounds of each access, the rest results and arguments that Go's WebAssembly passes in memory, and code that the engine hardly optimizes: with all looks taken out of the engine, to see, the steps still took 2.4 times what the native ones take; " +
	"a twentieth keeps large results, with their digests, for when a node dies; the hand-overs are about a hundredth."

// An album is photographs in a folder, and a program that makes thumbnails of them.
type album struct {
	from, to, program string
	names             []string
	photos            [][]byte
}

func (b *bench) newAlbum(ctx context.Context, n, width, height int) (*album, error) {
	a := &album{from: filepath.Join(b.Dir, "photos"), to: filepath.Join(b.Dir, "small"), program: filepath.Join(b.Dir, "native")}
	build := exec.CommandContext(ctx, "go", "build", "-o", a.program, module+"examples/thumbnails/native")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the native program: %w: %s", err, out)
	}
	if err := os.MkdirAll(a.from, 0o755); err != nil {
		return nil, err
	}
	a.names, a.photos = make([]string, n), make([][]byte, n)
	err := each(n, runtime.NumCPU(), func(i int) (err error) {
		a.names[i] = fmt.Sprintf("%03d.jpg", i)
		if a.photos[i], err = photo.Make(uint64(i), width, height); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(a.from, a.names[i]), a.photos[i], 0o600)
	})
	return a, err
}

// each calls do for n indexes, with as many concurrent calls as workers.
func each(n, workers int, do func(i int) error) error {
	next := make(chan int)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := range next {
				if errs[w] == nil {
					errs[w] = do(i)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	return errors.Join(errs...)
}

// byProgram returns a measurement in which the native program works on some photographs at a time,
// in seconds.
func (a *album) byProgram(workers int) measurement {
	return func(ctx context.Context) (float64, error) {
		begin := time.Now()
		if out, err := exec.CommandContext(ctx, a.program, "-workers", strconv.Itoa(workers), a.from, a.to).CombinedOutput(); err != nil {
			return 0, fmt.Errorf("native program: %w: %s", err, out)
		}
		return time.Since(begin).Seconds(), nil
	}
}

// senders returns the number of photographs that are processed at a time: one more than cores keeps
// these busy while another photograph is sent or recorded.
func senders() int { return runtime.NumCPU() + 1 }

// byWorkflow returns a measurement of the workflow, in seconds. The thumbnails must equal those of
// the native code.
func (a *album) byWorkflow(s *testNode) measurement {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: senders()}}
	return func(ctx context.Context) (float64, error) {
		defer client.CloseIdleConnections()
		small := make([][]byte, len(a.photos))
		begin := time.Now()
		err := each(len(a.photos), senders(), func(i int) (err error) {
			small[i], err = post(ctx, client, "http://"+s.addr()+"/thumbnails/", "image/jpeg", a.photos[i])
			return err
		})
		took := time.Since(begin).Seconds()
		if err != nil {
			return 0, err
		}
		return took, a.compare(small)
	}
}

func (a *album) compare(small [][]byte) error {
	for i := range small {
		want, err := os.ReadFile(filepath.Join(a.to, a.names[i]))
		if errors.Is(err, os.ErrNotExist) {
			want, err = photo.Thumbnail(a.photos[i])
		}
		if err != nil {
			return err
		}
		if !bytes.Equal(small[i], want) {
			return fmt.Errorf("the thumbnail of %s has %d bytes and is not the native one of %d", a.names[i], len(small[i]), len(want))
		}
	}
	return nil
}
