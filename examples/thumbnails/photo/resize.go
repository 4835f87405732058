package photo

// Resize scales a picture to the width Width; each of its pixels is the mean of the pixels that it
// replaces. A picture that is not wider stays unchanged.
func Resize(alloc Alloc, p Picture) Picture {
	width, height, ratio := p.about()
	if width <= Width {
		return p
	}
	small := New(alloc, Width, max(1, height*Width/width), ratio)
	to := small.planes()
	for i, from := range p.planes() {
		shrink(to[i], from)
	}
	return small
}

// shrink adds up the rows that become one row, and then the columns.
func shrink(to, from plane) {
	columns, sums := cuts(from.width, to.width), make([]uint32, from.width)
	for y := range to.height {
		top, bottom := y*from.height/to.height, (y+1)*from.height/to.height
		clear(sums)
		for row := top; row < bottom; row++ {
			addRow(sums, from.row(row))
		}
		mean(to.row(y), sums, columns, bottom-top)
	}
}

// cuts returns where each of n parts of a line of the given length begins, and where the last part
// ends.
func cuts(length, n int) []int {
	at := make([]int, n+1)
	for i := range at {
		at[i] = i * length / n
	}
	return at
}

// addRow adds a row to the sums, four pixels at a time.
func addRow(sums []uint32, row []byte) {
	for len(row) >= 4 && len(sums) >= 4 {
		sums[0] += uint32(row[0])
		sums[1] += uint32(row[1])
		sums[2] += uint32(row[2])
		sums[3] += uint32(row[3])
		sums, row = sums[4:], row[4:]
	}
	for i, pixel := range row {
		sums[i] += uint32(pixel)
	}
}

func mean(to []byte, sums []uint32, columns []int, rows int) {
	for x := range to {
		part, sum := sums[columns[x]:columns[x+1]], uint32(0)
		for _, n := range part {
			sum += n
		}
		to[x] = byte(sum / uint32(len(part)*rows))
	}
}
