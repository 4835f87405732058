package data

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// distant is Chunks whose operations take a second. It counts those that run at a time.
type distant struct {
	*memory

	running, most, has atomic.Int32
}

func (d *distant) Has(ctx context.Context, digest string) (bool, error) {
	d.has.Add(1)
	defer d.travel()()
	return d.memory.Has(ctx, digest)
}

func (d *distant) Put(ctx context.Context, digest string, content []byte) error {
	defer d.travel()()
	return d.memory.Put(ctx, digest, content)
}

func (d *distant) travel() (arrived func()) {
	for n := d.running.Add(1); ; {
		most := d.most.Load()
		if n <= most || d.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(time.Second)
	return func() { d.running.Add(-1) }
}

// The files of a folder are written several at a time, equal ones once, and are in the manifest in the
// order of their names, as progress is told.
func TestFolderIsWrittenAtOnce(t *testing.T) {
	from, files, names := t.TempDir(), map[string][]byte{}, []string{}
	for i := range 160 {
		name := fmt.Sprintf("%04d", i)
		names, files[name] = append(names, name), fmt.Appendf(nil, "content %d", i/2)
	}
	write(t, from, files)
	synctest.Test(t, func(t *testing.T) {
		chunks, began := &distant{memory: newMemory()}, time.Now()
		var m Manifest
		var told []string
		if err := m.AddFolder(t.Context(), chunks, from, func(name string) { told = append(told, name) }); err != nil {
			t.Fatal(err)
		}
		if chunks.most.Load() != addCount {
			t.Errorf("%d operations at a time, want %d", chunks.most.Load(), addCount)
		}
		// 5 times addCount different chunks, each looked for and written.
		if rounds := time.Since(began) / time.Second; rounds > 10 {
			t.Errorf("it takes %d rounds, want 10", rounds)
		}
		if half := len(names) / 2; chunks.puts != half || int(chunks.has.Load()) != half {
			t.Errorf("%d chunks were looked for and %d written, want %d", chunks.has.Load(), chunks.puts, half)
		}
		var added []string
		for _, f := range m.Files {
			added = append(added, f.Name)
		}
		if !slices.Equal(added, names) || !slices.Equal(told, names) {
			t.Errorf("the manifest has %v, and progress was told of %v", added, told)
		}
	})
}

// faulty is Chunks that refuse one chunk, and write no other before that.
type faulty struct {
	*memory

	refused string
	begun   atomic.Int32
}

var errRefused = errors.New("refused")

func (f *faulty) Put(ctx context.Context, _ string, content []byte) error {
	f.begun.Add(1)
	if string(content) == f.refused {
		return errRefused
	}
	<-ctx.Done()
	return ctx.Err()
}

// The file that can't be written is named, those that are being written end, and no others are begun.
func TestFolderNamesTheFileThatFails(t *testing.T) {
	from, files := t.TempDir(), map[string][]byte{}
	for i := range 160 {
		files[fmt.Sprintf("%04d", i)] = fmt.Appendf(nil, "content %d", i)
	}
	write(t, from, files)
	synctest.Test(t, func(t *testing.T) {
		var m Manifest
		chunks := &faulty{memory: newMemory(), refused: "content 3"}
		err := m.AddFolder(t.Context(), chunks, from, nil)
		if !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "0003") || len(m.Files) > 0 {
			t.Errorf("%v, and %d files in the manifest", err, len(m.Files))
		}
		if n := chunks.begun.Load(); n > addCount {
			t.Errorf("%d writes were begun, want %d at most", n, addCount)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.AddFolder(ctx, newMemory(), from, nil); !errors.Is(err, context.Canceled) || len(m.Files) > 0 {
			t.Errorf("canceled: %v, and %d files", err, len(m.Files))
		}
	})
}
