package image

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// The numbers of linux/fs.h: PAGEMAP_SCAN and the categories of pages.
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

// scan finds the pages of memory that belong to nobody else: in a private
// mapping of a file those that were written, elsewhere those that were touched.
// Pages that were swapped out count as well.
//
// The kernel gets addresses within it, so it must not lie on a stack, which moves:
// scans come from a sync.Pool.
type scan struct {
	fd     uintptr
	memory []byte
	at     int
	found  []region
	arg    scanArg
	space  [64]region
}

// next scans on from at and puts what it found into found.
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
