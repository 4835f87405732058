// Package picture prepares pictures of digits for the example's model in the form of MNIST: the
// digit is scaled to a square of 20 x 20, whose center of mass is the center of 28 x 28.
package picture

import (
	"image"
	"image/color"
)

// The sizes of a prepared picture and of the digit in it.
const (
	Size   = 28
	Pixels = Size * Size
	inner  = 20
)

// Prepare returns the ink of each pixel of the prepared picture, from 0 to 1, row by row. Ink is
// dark in p. ok is false if there is no ink.
func Prepare(p image.Image) (values []float32, ok bool) {
	ink, width, height := crop(p)
	if width == 0 {
		return nil, false
	}
	return center(scale(ink, width, height)), true
}

// darkness returns how dark a color is, from 0 to 1; transparent pixels are not dark.
func darkness(c color.Color) float32 {
	r, g, b, a := c.RGBA()
	return (float32(a) - (0.299*float32(r) + 0.587*float32(g) + 0.114*float32(b))) / 0xffff
}

// crop returns the ink in its bounding box.
func crop(p image.Image) (ink []float32, width, height int) {
	const faint = 0.1
	b := p.Bounds()
	box := image.Rectangle{}
	all := make([]float32, b.Dx()*b.Dy())
	for y := range b.Dy() {
		for x := range b.Dx() {
			v := darkness(p.At(b.Min.X+x, b.Min.Y+y))
			if all[y*b.Dx()+x] = v; v > faint {
				box = box.Union(image.Rect(x, y, x+1, y+1))
			}
		}
	}
	for y := box.Min.Y; y < box.Max.Y; y++ {
		ink = append(ink, all[y*b.Dx()+box.Min.X:y*b.Dx()+box.Max.X]...)
	}
	return ink, box.Dx(), box.Dy()
}

// scale scales ink to inner x inner, each pixel the average of those that it covers.
func scale(ink []float32, width, height int) []float32 {
	out := make([]float32, inner*inner)
	side := max(width, height)
	left, top := (side-width)/2, (side-height)/2
	for y := range inner {
		for x := range inner {
			var sum float32
			n := 0
			for sy := y * side / inner; sy < max((y+1)*side/inner, y*side/inner+1); sy++ {
				for sx := x * side / inner; sx < max((x+1)*side/inner, x*side/inner+1); sx++ {
					n++
					if ix, iy := sx-left, sy-top; ix >= 0 && ix < width && iy >= 0 && iy < height {
						sum += ink[iy*width+ix]
					}
				}
			}
			out[y*inner+x] = sum / float32(n)
		}
	}
	return out
}

// center moves the center of mass of inner x inner to the center of Size x Size.
func center(in []float32) []float32 {
	var sum, sx, sy float32
	for i, v := range in {
		sum += v
		sx += v * float32(i%inner)
		sy += v * float32(i/inner)
	}
	dx, dy := Size/2-int(sx/sum+0.5), Size/2-int(sy/sum+0.5)
	out := make([]float32, Pixels)
	for i, v := range in {
		if x, y := i%inner+dx, i/inner+dy; x >= 0 && x < Size && y >= 0 && y < Size {
			out[y*Size+x] = v
		}
	}
	return out
}
