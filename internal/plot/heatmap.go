package plot

import (
	"fmt"
	"math"
	"slices"
)

// HeatMap shows a value over two quantities.
type HeatMap struct {
	Text
	X, Y Axis
	// Xs and Ys are the quantities' values, ascending; Values[i][j] belongs to Ys[i] and Xs[j].
	Xs, Ys []float64
	Values [][]float64
	// Format formats a value.
	Format func(float64) string
	// Least and Most are the values of the lightest and the darkest cell. Log shades by
	// logarithms.
	Least, Most float64
	Log         bool
	// Marks are drawn at their position between the cells' centres.
	Marks []Mark
}

// Mark is a named point in a heat map.
type Mark struct {
	Name string
	X, Y float64
	// Note is shown beside the name in the table.
	Note string
}

const (
	left       = 124
	cellHeight = 34
)

func (h *HeatMap) text() Text { return h.Text }

func (h *HeatMap) shadeOf(v float64) float64 {
	low, high := h.Least, h.Most
	if h.Log {
		v, low, high = math.Log(v), math.Log(low), math.Log(high)
	}
	return min(max((v-low)/(high-low), 0), 1)
}

func (h *HeatMap) draw() *canvas {
	c, top := newCanvas(h.Text)
	w := float64(width-left-margin) / float64(len(h.Xs))
	bottom := top + cellHeight*float64(len(h.Ys))
	for i, y := range h.Ys {
		at := bottom - cellHeight*float64(i+1)
		c.text(left-8, at+cellHeight/2+4, "e", h.Y.format(y))
		for j, x := range h.Xs {
			h.drawCell(c, h.Values[i][j], left+w*float64(j), at, w, fmt.Sprintf("%s, %s: %s", h.X.format(x), h.Y.format(y), h.Format(h.Values[i][j])))
		}
	}
	for j, x := range h.Xs {
		if w >= 46 || j%2 == 0 {
			c.text(left+w*(float64(j)+0.5), bottom+lineHeight, "m s", h.X.format(x))
		}
	}
	c.text(left+float64(width-left-margin)/2, bottom+2*lineHeight+2, "m", h.X.Title)
	c.vertical(margin+fontSize, (top+bottom)/2, h.Y.Title)
	h.drawMarks(c, w, top, bottom)
	c.height = int(bottom) + 3*lineHeight
	return c
}

// drawCell draws the cell of a value at (x, y), w wide.
func (h *HeatMap) drawCell(c *canvas, v, x, y, w float64, tip string) {
	s := h.shadeOf(v)
	c.box(x, y, w-1, cellHeight-1, shade(s), tip)
	if w < 30 {
		return
	}
	class := "m s k"
	if isDark(s) {
		class = "m s w"
	}
	c.add(`<text x="%.1f" y="%.1f" class="%s" pointer-events="none">%s</text>`, x+w/2, y+cellHeight/2+4, class, escape(h.Format(v)))
}

// drawMarks draws the marks with their names, which it places without overlap. Names for which the
// figure has no space are in the tooltips and the table only.
func (h *HeatMap) drawMarks(c *canvas, w, top, bottom float64) {
	var taken []float64
	for i, m := range h.Marks {
		x := left + w*(indexOf(h.Xs, m.X)+0.5)
		y := bottom - cellHeight*(indexOf(h.Ys, m.Y)+0.5)
		c.mark(x, y, i, "#fff", m.Name+": "+m.Note)
		label, ok := labelPlace(taken, y-9, top, bottom)
		if !ok {
			continue
		}
		taken = append(taken, label)
		class, at := "s o", x+8
		if x > width*0.7 {
			class, at = "s o e", x-8
		}
		c.text(at, label, class, m.Name)
	}
}

// labelPlace returns the nearest place for a name that is above a place, or else below it, and not
// taken.
func labelPlace(taken []float64, at, top, bottom float64) (float64, bool) {
	const height = lineHeight - 3
	for _, step := range []float64{-height, height} {
		for label := at; label >= top && label <= bottom; label += step {
			if !slices.ContainsFunc(taken, func(t float64) bool { return math.Abs(t-label) < height }) {
				return label, true
			}
		}
	}
	return 0, false
}

// indexOf returns the position of v on the logarithmic axis of values: an index with a fraction.
func indexOf(values []float64, v float64) float64 {
	last := len(values) - 1
	if v <= values[0] {
		return 0
	}
	for i := range last {
		if v <= values[i+1] {
			return float64(i) + math.Log(v/values[i])/math.Log(values[i+1]/values[i])
		}
	}
	return float64(last)
}

func (h *HeatMap) table() table {
	t := table{titles: []string{h.Y.Title + " \\ " + h.X.Title}}
	for _, x := range h.Xs {
		t.titles = append(t.titles, h.X.format(x))
	}
	for i, y := range h.Ys {
		row := []string{h.Y.format(y)}
		for j := range h.Xs {
			row = append(row, h.Format(h.Values[i][j]))
		}
		t.rows = append(t.rows, row)
	}
	for _, m := range h.Marks {
		t.rows = append(t.rows, []string{m.Name, m.Note})
	}
	return t
}
