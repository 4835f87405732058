package photo

// Blur is a box blur: each pixel becomes the mean of the square of pixels within Radius,
// computed separably, rows first. Pixels beyond an edge repeat those at the edge.
func Blur(alloc Alloc, p Picture) Picture {
	width, height, ratio := p.about()
	blurred := New(alloc, width, height, ratio)
	to := blurred.planes()
	for i, from := range p.planes() {
		half := plane{from.width, from.height, make([]byte, len(from.pixels))}
		for y := range from.height {
			blurRow(half.row(y), from.row(y))
		}
		blurColumns(to[i], half)
	}
	return blurred
}

const window = 2*Radius + 1

func inside(i, n int) int { return min(max(i, 0), n-1) }

func blurRow(to, from []byte) {
	sum := uint32(0)
	for i := -Radius; i < Radius; i++ {
		sum += uint32(from[inside(i, len(from))])
	}
	for i := range to {
		sum += uint32(from[inside(i+Radius, len(from))])
		to[i] = byte(sum / window)
		sum -= uint32(from[inside(i-Radius, len(from))])
	}
}

// blurColumns keeps a sum for each column and processes all columns row by row.
func blurColumns(to, from plane) {
	sums := make([]uint32, from.width)
	for y := -Radius; y < Radius; y++ {
		for x, pixel := range from.row(inside(y, from.height)) {
			sums[x] += uint32(pixel)
		}
	}
	for y := range from.height {
		in, out, row := from.row(inside(y+Radius, from.height)), from.row(inside(y-Radius, from.height)), to.row(y)
		for x := range row {
			sum := sums[x] + uint32(in[x])
			row[x] = byte(sum / window)
			sums[x] = sum - uint32(out[x])
		}
	}
}
