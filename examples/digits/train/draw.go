package main

import (
	"image"
	"image/color"
	"math"
	"math/rand/v2"
)

// A point is a point in the unit square, with y downwards.
type point struct{ x, y float64 }

// arc returns points of an ellipse from one angle to another, in degrees: 0 is right, 90 is down.
func arc(cx, cy, rx, ry, from, to float64) []point {
	const steps = 16
	var list []point
	for i := range steps + 1 {
		a := (from + (to-from)*float64(i)/steps) * math.Pi / 180
		list = append(list, point{cx + rx*math.Cos(a), cy + ry*math.Sin(a)})
	}
	return list
}

func join(parts ...[]point) []point {
	var all []point
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// strokes returns the strokes of a digit in one of its usual forms.
func strokes(digit int, r *rand.Rand) [][]point {
	alternative := r.IntN(2) == 0
	switch digit {
	case 0:
		return [][]point{arc(.5, .5, .35, .5, -90, 270)}
	case 1:
		if alternative {
			return [][]point{{{.5, 0}, {.5, 1}}}
		}
		return [][]point{{{.25, .25}, {.55, 0}, {.55, 1}}}
	case 2:
		return [][]point{join(arc(.5, .28, .35, .28, -170, 40), []point{{.1, 1}, {.9, 1}})}
	case 3:
		return [][]point{join(arc(.45, .25, .35, .25, -160, 90), arc(.45, .74, .4, .26, -90, 160))}
	case 4:
		if alternative {
			return [][]point{{{.6, 1}, {.6, 0}, {.1, .65}, {.9, .65}}}
		}
		return [][]point{{{.2, 0}, {.15, .5}, {.85, .5}}, {{.75, 0}, {.7, 1}}}
	case 5:
		return [][]point{join([]point{{.85, 0}, {.25, 0}, {.2, .45}}, arc(.45, .68, .38, .32, -110, 150))}
	case 6:
		return [][]point{join([]point{{.7, 0}, {.35, .3}}, arc(.5, .7, .35, .3, 200, 560))}
	case 7:
		if alternative {
			return [][]point{{{.1, 0}, {.9, 0}, {.4, 1}}, {{.3, .5}, {.75, .5}}}
		}
		return [][]point{{{.1, 0}, {.9, 0}, {.4, 1}}}
	case 8:
		return [][]point{arc(.5, .25, .28, .25, 90, 450), arc(.5, .75, .36, .25, -90, 270)}
	}
	return [][]point{join(arc(.5, .3, .33, .3, 0, 360), []point{{.83, .3}, {.75, 1}})}
}

// canvas is the side of a drawn picture in pixels.
const canvas = 56

// Draw draws a digit like handwriting, dark on white.
func Draw(digit int, r *rand.Rand) image.Image {
	vary := func(by float64) float64 { return (2*r.Float64() - 1) * by }
	angle, shear := vary(.22), vary(.25)
	sx, sy := .5+vary(.15), .7+vary(.12)
	sin, cos := math.Sincos(angle)
	place := func(p point) point {
		x, y := (p.x-.5)*sx+shear*(p.y-.5)*sy+vary(.012), (p.y-.5)*sy+vary(.012)
		return point{(cos*x - sin*y + .5) * canvas, (sin*x + cos*y + .5) * canvas}
	}
	width := 1.2 + 2*r.Float64()
	ink := make([]float64, canvas*canvas)
	for _, stroke := range strokes(digit, r) {
		last := place(stroke[0])
		for _, p := range stroke[1:] {
			next := place(p)
			line(ink, last, next, width)
			last = next
		}
	}
	out := image.NewGray(image.Rect(0, 0, canvas, canvas))
	for i, v := range ink {
		out.SetGray(i%canvas, i/canvas, color.Gray{Y: uint8(255 - 255*v)})
	}
	return out
}

// line inks the pixels that are nearer than width to the line from a to b.
func line(ink []float64, a, b point, width float64) {
	dx, dy := b.x-a.x, b.y-a.y
	length := dx*dx + dy*dy
	for y := max(0, int(min(a.y, b.y)-width-1)); y < min(canvas, int(max(a.y, b.y)+width+2)); y++ {
		for x := max(0, int(min(a.x, b.x)-width-1)); x < min(canvas, int(max(a.x, b.x)+width+2)); x++ {
			px, py := float64(x)-a.x, float64(y)-a.y
			t := 0.0
			if length > 0 {
				t = max(0, min(1, (px*dx+py*dy)/length))
			}
			distance := math.Hypot(px-t*dx, py-t*dy)
			ink[y*canvas+x] = max(ink[y*canvas+x], max(0, min(1, width+.5-distance)))
		}
	}
}
