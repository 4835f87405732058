package image

import (
	"fmt"
	"testing"
)

// BenchmarkReset resets 4 MiB with four written pages and a varying number of read ones.
func BenchmarkReset(b *testing.B) {
	const pages = 1024
	memory := make([]byte, pages*PageSize)
	for i := range pages {
		memory[i*PageSize] = 1
	}
	i := newImage(b, memory)
	for _, method := range []Method{Scan, Drop} {
		for _, read := range []int{0, 64, 1024} {
			b.Run(fmt.Sprintf("%v/read=%d", method, read), func(b *testing.B) {
				r, _, err := NewResetter(method, 0)
				if err != nil {
					b.Skip(err)
				}
				defer r.Close()
				var p Pool
				defer p.Close()
				g := take(b, &p, pages*PageSize, i)
				defer g.Release()
				sum := byte(0)
				for b.Loop() {
					for page := range read {
						sum += g.Bytes()[page*PageSize]
					}
					for page := range 4 {
						g.Bytes()[page*250*PageSize] = 2
					}
					if _, err := r.Reset(g, pages*PageSize, false); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
