package memfd

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

const size = 3 * 4096

// unsealed returns a memfd of size bytes that has only the given seals.
func unsealed(t *testing.T, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("t", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "t")
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(size); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestNewHasConstantSize(t *testing.T) {
	f, err := New("t", size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := VerifyShared(f); n != size || err != nil {
		t.Errorf("VerifyShared = %d, %v; want %d", n, err, size)
	}
	for _, n := range []int64{size - 1, size + 1} {
		if err := f.Truncate(n); !errors.Is(err, unix.EPERM) {
			t.Errorf("Truncate(%d) = %v, want EPERM", n, err)
		}
	}
	if _, err := f.WriteAt([]byte("content"), 0); err != nil {
		t.Errorf("the memory can't be written to: %v", err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("another seal: %v, want EPERM", err)
	}
}

func TestNewImmutableCannotChange(t *testing.T) {
	want := []byte("content")
	f, err := NewImmutable("t", func(f *os.File) error { _, err := f.Write(want); return err })
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("WriteAt = %v, want EPERM", err)
	}
	if err := f.Truncate(1); !errors.Is(err, unix.EPERM) {
		t.Errorf("Truncate = %v, want EPERM", err)
	}
	if got, err := io.ReadAll(io.NewSectionReader(f, 0, size)); !bytes.Equal(got, want) || err != nil {
		t.Errorf("the content is %q, %v", got, err)
	}
	if err := Verify(f); err != nil {
		t.Error(err)
	}
	if n, err := VerifyShared(f); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("VerifyShared = %d, %v; want a refusal", n, err)
	}
}

// A process that has punched a hole into huge pages, and taken those that were free, makes the next
// access to the memory fault.
func TestHugePagesAreRefused(t *testing.T) {
	fd, err := unix.MemfdCreate("t", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_HUGETLB)
	if err != nil {
		t.Skipf("no memory files of huge pages: %v", err)
	}
	f := os.NewFile(uintptr(fd), "t")
	defer f.Close()
	if err := f.Truncate(1 << 30); err != nil { // a multiple of each size of huge pages
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, sizeSeals); err != nil {
		t.Fatal(err)
	}
	if n, err := VerifyShared(f); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("VerifyShared = %d, %v; want a refusal", n, err)
	}
}

// A file of which the kernel holds a page is sealed when the kernel has let go of it; a writable
// mapping makes the kernel refuse the seal in the same way.
func TestSealWaitsForPages(t *testing.T) {
	busy := func() (*os.File, func(time.Duration)) {
		f := unsealed(t, 0)
		m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		return f, func(time.Duration) { Unmap(m); m = nil }
	}
	f, release := busy()
	if err := seal(f, unix.F_SEAL_WRITE, release); err != nil {
		t.Errorf("seal = %v after the pages were released", err)
	}
	f, release = busy()
	defer release(0)
	waited := time.Duration(0)
	if err := seal(f, unix.F_SEAL_WRITE, func(d time.Duration) { waited += d }); !errors.Is(err, unix.EBUSY) {
		t.Errorf("seal = %v of pages that stay in use, want EBUSY", err)
	}
	if waited < time.Second || waited > 10*time.Second {
		t.Errorf("waited for %v", waited)
	}
}

func TestNewClosesTheFileOfAFailure(t *testing.T) {
	failure := errors.New("no content")
	var inside *os.File
	f, err := NewImmutable("t", func(f *os.File) error { inside = f; return failure })
	if f != nil || !errors.Is(err, failure) {
		t.Errorf("NewImmutable = %v, %v", f, err)
	}
	if err := inside.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is open after the failure: %v", err)
	}
	if _, err := New("t", -1); err == nil {
		t.Error("memory of negative size")
	}
}

// TestVerifyShared refuses every file whose mapping could fault or can't be written to.
func TestVerifyShared(t *testing.T) {
	plain, err := os.Create(t.TempDir() + "/plain")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	pipe, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer end.Close()
	for name, f := range map[string]*os.File{
		"no memory":             plain,
		"a pipe":                pipe,
		"no seals":              unsealed(t, 0),
		"can grow":              unsealed(t, unix.F_SEAL_SHRINK),
		"can shrink":            unsealed(t, unix.F_SEAL_GROW),
		"read-only":             unsealed(t, sizeSeals|unix.F_SEAL_WRITE),
		"read-only from now on": unsealed(t, sizeSeals|unix.F_SEAL_FUTURE_WRITE),
	} {
		if n, err := VerifyShared(f); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: VerifyShared = %d, %v; want a refusal of kind %v", name, n, err, outboard.Protocol)
		}
	}
	if n, err := VerifyShared(unsealed(t, sizeSeals)); n != size || err != nil {
		t.Errorf("VerifyShared of sealed memory = %d, %v", n, err)
	}
	// A file of a tmpfs has seals, and is memory; a pipe could block its reader for ever.
	if err := Verify(pipe); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("Verify of a pipe = %v, want a refusal", err)
	}
	if err := Verify(unsealed(t, 0)); err != nil {
		t.Errorf("Verify of memory without seals: %v", err)
	}
}
