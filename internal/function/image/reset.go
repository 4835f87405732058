package image

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// DefaultKeepDirty bounds the bytes that a reset copies back, and so the memory that an
// idle range occupies. Other dirty pages are dropped.
const DefaultKeepDirty = 8 << 20

// Resetter restores ranges to the contents of their images. It is safe for concurrent use.
type Resetter struct {
	pagemap   *os.File // nil: without a scan
	counts    bool     // the kernel counts page faults by thread
	keepDirty int
	scans     sync.Pool
}

// Method is a method of resetting.
type Method int

// The methods.
const (
	// Fastest is Scan where the kernel supports it, or else Drop.
	Fastest Method = iota
	// Scan finds the written pages and copies them back.
	Scan
	// Drop releases all private pages to the kernel.
	Drop
)

// String returns the method's name in logs and measurements.
func (m Method) String() string {
	switch m {
	case Scan:
		return "scan"
	case Drop:
		return "drop"
	default:
		return "fastest"
	}
}

// ErrNoScan reports that the kernel has no PAGEMAP_SCAN.
var ErrNoScan = errors.New("this kernel has no PAGEMAP_SCAN (it came with Linux 6.7)")

// NewResetter creates a Resetter. With Fastest it never fails: Method returns the chosen
// method, and fallback is the reason for Drop, for the log.
func NewResetter(m Method, keepDirty int) (r *Resetter, fallback, err error) {
	if keepDirty == 0 {
		keepDirty = DefaultKeepDirty
	}
	r = &Resetter{keepDirty: keepDirty}
	r.scans.New = func() any { return new(scan) }
	if m == Drop {
		return r, nil, nil
	}
	reason := r.probe()
	switch {
	case reason == nil:
		return r, nil, nil
	case m == Scan:
		return nil, nil, reason
	}
	return r, reason, nil
}

// probe opens the page map and tries a scan of a test page.
func (r *Resetter) probe() error {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return fmt.Errorf("page map: %w", err)
	}
	page, err := unix.Mmap(-1, 0, PageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("page map: %w", err)
	}
	defer func() { _ = unix.Munmap(page) }()
	var w Watch
	w.Begin()
	page[0] = 1
	r.counts = !w.End()
	s := r.scan(f, page)
	if err := s.next(); err != nil || len(s.found) != 1 {
		_ = f.Close()
		return errors.Join(ErrNoScan, err)
	}
	r.pagemap = f
	return nil
}

// Method returns how ranges are reset: Scan or Drop.
func (r *Resetter) Method() Method {
	if r.pagemap != nil {
		return Scan
	}
	return Drop
}

// Close closes the page map. The Resetter must not be used afterwards.
func (r *Resetter) Close() error {
	if r.pagemap == nil {
		return nil
	}
	return r.pagemap.Close()
}

// Stats describe the work of a reset.
type Stats struct {
	Copied  int  // bytes copied back from the image
	Dropped int  // bytes released to the kernel
	Quiet   bool // the scan was skipped
}

// sweepEvery is the number of resets between two that release the private pages that were
// not written lately. Copying a page back costs a tenth of the page fault that it saves.
const sweepEvery = 64

// Reset restores the first size bytes of a range to their contents after Load: the image,
// zero above it, and in the window the files that are mapped there. Writes to a shared
// mapping are kept. Memory above size must not have been written.
//
// quiet reports that a Watch saw no page fault since the last Reset.
func (r *Resetter) Reset(g *Range, size int, quiet bool) (Stats, error) {
	var done Stats
	if r.pagemap == nil {
		err := g.unshared(size, func(from, to int) error { return dropped(g.base, from, to, &done) })
		return done, err
	}
	done.Quiet = quiet && r.counts
	if !done.Quiet {
		g.private = g.private[:0]
		err := g.unshared(size, func(from, to int) error { return r.part(g, from, to, &done) })
		if err != nil {
			return done, err
		}
	}
	if g.resets++; g.resets%sweepEvery == 0 {
		err := g.sweep(&done)
		return done, err
	}
	for _, page := range g.private {
		g.restore(page)
	}
	done.Copied = len(g.private) * PageSize
	return done, nil
}

// part scans for private pages between from and to. It records the pages worth keeping, and drops
// the others.
func (r *Resetter) part(g *Range, from, to int, done *Stats) error {
	s := r.scan(r.pagemap, g.base[from:to])
	defer r.scans.Put(s)
	for s.at < to-from {
		if err := s.next(); err != nil {
			return fmt.Errorf("scan pages: %w", err)
		}
		for _, f := range s.found {
			if err := r.region(g, f, done); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Resetter) scan(f *os.File, memory []byte) *scan {
	s := r.scans.Get().(*scan)
	s.fd, s.memory, s.at, s.found = f.Fd(), memory, 0, nil
	return s
}

// region records or drops a region of private pages. It may overlap the window, whose pages
// are always dropped: a private copy would hide the page of the file.
func (r *Resetter) region(g *Range, f region, done *Stats) error {
	base := uintptr(unsafe.Pointer(&g.base[0]))
	from, to := int(uintptr(f.start)-base), int(uintptr(f.end)-base)
	w := g.image.window
	if err := r.written(g, from, min(to, w.From), done); err != nil {
		return err
	}
	if err := dropped(g.base, max(from, w.From), min(to, w.To), done); err != nil {
		return err
	}
	return r.written(g, max(from, w.To), to, done)
}

// written records or drops private pages outside of the window.
func (r *Resetter) written(g *Range, from, to int, done *Stats) error {
	for from < min(to, g.image.size) && len(g.private)*PageSize < r.keepDirty {
		g.private = append(g.private, int32(from/PageSize))
		from += PageSize
	}
	return dropped(g.base, from, to, done)
}

func dropped(memory []byte, from, to int, done *Stats) error {
	if from >= to {
		return nil
	}
	done.Dropped += to - from
	return drop(memory[from:to])
}

// restore copies a page back from the image.
func (g *Range) restore(page int32) {
	at := int(page) * PageSize
	g.image.restore(g.base[at:at+PageSize], at)
}

// sweep copies the pages back that were written since the last reset, and drops the other
// private pages.
func (g *Range) sweep(done *Stats) error {
	kept := g.private[:0]
	for _, page := range g.private {
		at := int(page) * PageSize
		if bytes.Equal(g.base[at:at+PageSize], g.image.view[at:at+PageSize]) {
			if err := dropped(g.base, at, at+PageSize, done); err != nil {
				return err
			}
			continue
		}
		g.restore(page)
		kept = append(kept, page)
		done.Copied += PageSize
	}
	g.private = kept
	return nil
}

func drop(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	if err := unix.Madvise(memory, unix.MADV_DONTNEED); err != nil {
		return fmt.Errorf("drop pages: %w", err)
	}
	return nil
}
