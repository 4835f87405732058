package artifact

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/disktest"
)

// A rank, a peer or a user that has the store keep file after file does not fill the disk on which
// the pool's state lies.
func TestFilesLeaveSpace(t *testing.T) { disktest.Run(t, 64<<20, testFilesLeaveSpace) }

func testFilesLeaveSpace(t *testing.T, dir string) {
	s, err := Open(Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 1<<20)
	for n := 0; ; n++ {
		if n > 64 {
			t.Fatal("the disk is full, and nothing was refused")
		}
		_, _ = rand.Read(content)
		if err = s.Write(t.Context(), Digest(content), content); err != nil {
			break
		}
	}
	if outboard.KindOf(err) != outboard.Exhausted || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("refused with %v", err)
	}
	var left unix.Statfs_t
	if err := unix.Statfs(dir, &left); err != nil {
		t.Fatal(err)
	}
	if free := left.Bavail * uint64(left.Bsize); free < 1<<20 { //nolint:gosec // it is positive
		t.Errorf("%d bytes are left", free)
	}
	// One large file is refused as well, and leaves nothing.
	if err := s.Write(t.Context(), Digest(nil), bytes.Repeat(content, 60)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a large file: %v", err)
	}
}

// Files that are written at the same time leave as much space as one does: none takes what was
// promised to another one.
func TestFilesLeaveSpaceTogether(t *testing.T) { disktest.Run(t, 64<<20, testFilesLeaveSpaceTogether) }

func testFilesLeaveSpaceTogether(t *testing.T, dir string) {
	s, err := Open(Options{Dir: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	const files = 32
	content := make([]byte, 4<<20)
	_, _ = rand.Read(content)
	var begun, written sync.WaitGroup
	begun.Add(files)
	refused := make(chan error, files)
	for n := range files {
		own := append(bytes.Clone(content), byte(n))
		written.Go(func() {
			_, err := s.Save(t.Context(), Digest(own), &togetherReader{r: bytes.NewReader(own), begun: &begun})
			refused <- err
		})
	}
	written.Wait()
	full := 0
	for range files {
		switch err := <-refused; {
		case err == nil:
		case strings.Contains(err.Error(), "stay free"):
			full++
		default:
			t.Errorf("the disk itself was full: %v", err)
		}
	}
	if full == 0 || full == files {
		t.Errorf("%d of %d files were refused", full, files)
	}
}

// A togetherReader has all readers of begun begin together.
type togetherReader struct {
	r     io.Reader
	begun *sync.WaitGroup
	once  sync.Once
}

func (r *togetherReader) Read(p []byte) (int, error) {
	r.once.Do(func() { r.begun.Done(); r.begun.Wait() })
	return r.r.Read(p)
}
