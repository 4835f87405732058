// Command native creates thumbnails of all photographs in a folder, in one process. It is the
// reference for the workflow.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/outboard-run/outboard/examples/thumbnails/photo"
)

func main() {
	workers := flag.Int("workers", runtime.NumCPU(), "photographs at a time")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: native [-workers n] FROM TO")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *workers, flag.Arg(0), flag.Arg(1))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "native:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, workers int, from, to string) error {
	files, err := filepath.Glob(filepath.Join(from, "*.jpg"))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	next := make(chan string)
	errs := make([]error, workers)
	var all sync.WaitGroup
	for i := range workers {
		all.Go(func() {
			for file := range next {
				errs[i] = errors.Join(errs[i], thumbnail(file, filepath.Join(to, filepath.Base(file))))
			}
		})
	}
	for _, file := range files {
		if ctx.Err() != nil {
			break
		}
		next <- file
	}
	close(next)
	all.Wait()
	return errors.Join(append(errs, ctx.Err())...)
}

func thumbnail(from, to string) error {
	file, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	small, err := photo.Thumbnail(file)
	if err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return os.WriteFile(to, small, 0o600)
}
