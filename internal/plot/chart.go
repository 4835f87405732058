package plot

import (
	"fmt"
	"math"
	"strings"
)

// Chart shows series of points over one quantity.
type Chart struct {
	Text
	X, Y   Axis
	Series []Series
	// Diagonal draws the line on which both quantities are equal.
	Diagonal bool
	// Above and Below, if set, name the sides of the first series' line.
	Above, Below string
}

// Series is a line, or with Scatter separate points.
type Series struct {
	Name    string
	Points  []Point
	Scatter bool
}

// Point is a point of a series.
type Point struct {
	X, Y float64
	// Low and High, if they differ, are an interval around Y.
	Low, High float64
	// Name is shown as the point's tooltip.
	Name string
}

const chartHeight = 380

var (
	dashes = []string{"", "7 4", "2 4", "10 4 2 4", "1 3", "14 5"}
	inks   = []string{"#16205c", "#a13d2d", "#2f7d4f", "#7a4fa0", "#8a6d00", "#333333"}
)

func (c *Chart) text() Text { return c.Text }

// bounds returns the least and greatest values of the points along one axis, and the values that
// the axis includes in any case.
func (c *Chart) bounds(axis Axis, of func(Point) []float64) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	if axis.Least != axis.Most {
		low, high = axis.Least, axis.Most
	}
	for _, s := range c.Series {
		for _, p := range s.Points {
			for _, v := range of(p) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if low > high {
		return 1, 10
	}
	return low, high
}

func (c *Chart) scales(top, bottom float64) (x, y scale) {
	ys := func(p Point) []float64 {
		if p.Low != p.High {
			return []float64{p.Y, p.Low, p.High}
		}
		return []float64{p.Y}
	}
	x = scale{axis: c.X, from: left, to: width - margin - 20}
	y = scale{axis: c.Y, from: bottom, to: top}
	x.low, x.high = c.bounds(c.X, func(p Point) []float64 { return []float64{p.X} })
	y.low, y.high = c.bounds(c.Y, ys)
	if c.Diagonal {
		x.low, x.high = min(x.low, y.low), max(x.high, y.high)
		y.low, y.high = x.low, x.high
	}
	for _, s := range []*scale{&x, &y} {
		s.pad()
	}
	return x, y
}

// pad adds space at both ends.
func (s *scale) pad() {
	if s.axis.Log {
		f := max(math.Pow(s.high/s.low, 0.04), 1.02)
		s.low, s.high = s.low/f, s.high*f
		return
	}
	d := max((s.high-s.low)*0.05, 1e-12)
	if s.low != 0 {
		s.low -= d
	}
	s.high += d
}

func (c *Chart) draw() *canvas {
	k, top := newCanvas(c.Text)
	bottom := top + chartHeight
	x, y := c.scales(top, bottom)
	for _, v := range x.ticks() {
		k.line(x.at(v), top, x.at(v), bottom, "g")
		k.text(x.at(v), bottom+lineHeight, "m s", c.X.format(v))
	}
	for _, v := range y.ticks() {
		k.line(x.from, y.at(v), x.to, y.at(v), "g")
		k.text(x.from-8, y.at(v)+4, "e s", c.Y.format(v))
	}
	k.line(x.from, top, x.from, bottom, "x")
	k.line(x.from, bottom, x.to, bottom, "x")
	k.text((x.from+x.to)/2, bottom+2*lineHeight+2, "m", c.X.Title)
	k.vertical(margin+fontSize, (top+bottom)/2, c.Y.Title)
	if c.Diagonal {
		k.add(`<path d="M%.1f %.1fL%.1f %.1f" stroke="#888" stroke-dasharray="4 4"/>`, x.at(x.low), y.at(x.low), x.at(x.high), y.at(x.high))
	}
	for i, s := range c.Series {
		c.drawSeries(k, i, s, x, y)
	}
	c.drawSides(k, x, y)
	k.height = int(bottom) + 3*lineHeight + c.legend(k, bottom+3*lineHeight+4)
	return k
}

func (c *Chart) drawSeries(k *canvas, i int, s Series, x, y scale) {
	if !s.Scatter {
		var path strings.Builder
		for n, p := range s.Points {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(n, 1)], x.at(p.X), y.at(p.Y))
		}
		k.add(`<path d="%s" fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`, path.String(), inks[i%len(inks)], dashes[i%len(dashes)])
	}
	for _, p := range s.Points {
		if p.Low != p.High {
			k.add(`<path d="M%.1f %.1fV%.1f" stroke="%s"/>`, x.at(p.X), y.at(p.Low), y.at(p.High), inks[i%len(inks)])
		}
		k.mark(x.at(p.X), y.at(p.Y), i, inks[i%len(inks)], strings.TrimPrefix(fmt.Sprintf("%s: %s, %s", p.Name, c.X.format(p.X), c.Y.format(p.Y)), ": "))
	}
}

func (c *Chart) drawSides(k *canvas, x, y scale) {
	if c.Above != "" {
		k.text(x.from+14, y.to+lineHeight+4, "o", c.Above)
	}
	if c.Below != "" {
		k.text(x.to-14, y.from-12, "e o", c.Below)
	}
}

// legend draws the names of the series, and returns its height.
func (c *Chart) legend(k *canvas, top float64) int {
	if len(c.Series) < 2 {
		return 0
	}
	const column = 208
	perRow := (width - left) / column
	for i, s := range c.Series {
		x, y := left+float64(i%perRow)*column, top+float64(i/perRow)*lineHeight
		k.mark(x, y-4, i, inks[i%len(inks)], s.Name)
		k.text(x+12, y, "s", s.Name)
	}
	return ((len(c.Series)-1)/perRow + 1) * lineHeight
}

func (c *Chart) table() table {
	t := table{titles: []string{"", c.X.Title, c.Y.Title, "from", "to"}}
	for _, s := range c.Series {
		for _, p := range s.Points {
			row := []string{strings.TrimSpace(s.Name + " " + p.Name), c.X.format(p.X), c.Y.format(p.Y), "", ""}
			if p.Low != p.High {
				row[3], row[4] = c.Y.format(p.Low), c.Y.format(p.High)
			}
			t.rows = append(t.rows, row)
		}
	}
	return t
}
