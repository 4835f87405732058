package plot

import "fmt"

// Timeline shows when rows were busy, in groups below each other, for example to compare two
// executions of the same work.
type Timeline struct {
	Text
	Groups []TimelineGroup
	// Kinds are the names of the activities of a row, at most eight; Span.Kind is an index.
	Kinds []string
	// Format formats a time.
	Format func(float64) string
}

// TimelineGroup is a group of rows.
type TimelineGroup struct {
	Name string
	Rows []TimelineRow
}

// TimelineRow is the row of one resource.
type TimelineRow struct {
	Name  string
	Spans []Span
}

// Span is an interval in which a row was busy.
type Span struct {
	Begin, End float64
	Kind       int
	Name       string
}

const rowHeight = 22

func (t *Timeline) text() Text { return t.Text }

func (t *Timeline) end() (last float64) {
	for _, g := range t.Groups {
		for _, r := range g.Rows {
			for _, s := range r.Spans {
				last = max(last, s.End)
			}
		}
	}
	return last
}

// fill returns the colour of a kind: the shades differ in greyscale.
func (t *Timeline) fill(kind int) string {
	return shade(0.15 + 0.8*float64(kind)/float64(max(1, len(t.Kinds)-1)))
}

func (t *Timeline) draw() *canvas {
	c, y := newCanvas(t.Text)
	x := scale{axis: Axis{Format: t.Format}, low: 0, high: max(t.end(), 1e-12), from: left, to: width - margin - 10}
	top := y
	for _, g := range t.Groups {
		c.text(margin, y+fontSize, "h", g.Name)
		y += lineHeight + 6
		for _, r := range g.Rows {
			c.text(left-8, y+rowHeight/2+4, "e s", r.Name)
			c.line(x.from, y+rowHeight-1, x.to, y+rowHeight-1, "g")
			for _, s := range r.Spans {
				tip := fmt.Sprintf("%s, %s: %s to %s", r.Name, s.Name, t.Format(s.Begin), t.Format(s.End))
				c.box(x.at(s.Begin), y+2, max(0.6, x.at(s.End)-x.at(s.Begin)), rowHeight-5, t.fill(s.Kind), tip)
			}
			y += rowHeight
		}
		y += 8
	}
	for _, v := range x.ticks() {
		c.line(x.at(v), top, x.at(v), y, "g")
		c.text(x.at(v), y+lineHeight, "m s", t.Format(v))
	}
	y += 2*lineHeight + 6
	for i, kind := range t.Kinds {
		at := left + float64(i)*float64(width-left-margin)/float64(len(t.Kinds))
		c.box(at, y-10, 14, 12, t.fill(i), kind)
		c.text(at+20, y, "s", kind)
	}
	c.height = int(y) + lineHeight
	return c
}

func (t *Timeline) table() table {
	out := table{titles: []string{"", "row", "busy with", "from", "to"}}
	for _, g := range t.Groups {
		for _, r := range g.Rows {
			for _, s := range r.Spans {
				out.rows = append(out.rows, []string{g.Name, r.Name, s.Name, t.Format(s.Begin), t.Format(s.End)})
			}
		}
	}
	return out
}
