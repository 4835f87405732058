package image

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Constants of linux/fs.h: PAGEMAP_SCAN and the categories of pages.
const (
	pagemapScan = 0xc0606610

	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
)

// scanArg is struct pm_scan_arg.
type scanArg struct {
	size, flags                     uint64
	start, end, walkEnd             uint64
	vec, vecLen                     uint64
	maxPages                        uint64
	inverted, mask, anyOf, returned uint64
}

// region is struct page_region.
type region struct{ start, end, categories uint64 }

// scan finds private pages: in a private mapping of a file the pages that were written, in
// anonymous memory the pages that were touched. Pages that are swapped out count as well.
//
// The kernel gets addresses within the struct, so it must not be on a stack, which may
// move: scans are allocated by a sync.Pool.
type scan struct {
	fd     uintptr
	memory []byte
	at     int
	found  []region
	arg    scanArg
	space  [64]region
}

// next continues the scan at at and puts the regions into found.
func (s *scan) next() error {
	base := uint64(uintptr(unsafe.Pointer(&s.memory[0])))
	s.arg = scanArg{
		start:    base + uint64(s.at),
		end:      base + uint64(len(s.memory)),
		vec:      uint64(uintptr(unsafe.Pointer(&s.space[0]))),
		vecLen:   uint64(len(s.space)),
		inverted: pageIsFile,
		mask:     pageIsFile,
		anyOf:    pageIsPresent | pageIsSwapped,
		returned: pageIsFile,
	}
	s.arg.size = uint64(unsafe.Sizeof(s.arg))
	for {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, s.fd, pagemapScan, uintptr(unsafe.Pointer(&s.arg)))
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		s.found = s.space[:n]
		s.at = int(s.arg.walkEnd - base)
		return nil
	}
}
