package plot

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// canvas collects the elements of a figure.
type canvas struct {
	height int
	body   strings.Builder
}

// escape returns a text for XML and HTML. Characters that XML does not allow are replaced: a viewer
// would refuse the whole figure.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\t' && r != '\n' || r == '\ufffe' || r == '\uffff' {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError))))
}

// newCanvas begins a figure with its title and returns the height of that.
func newCanvas(t Text) (c *canvas, top float64) {
	c = &canvas{}
	c.text(margin, margin+fontSize, "h", t.Title)
	return c, margin + fontSize + lineHeight
}

func (c *canvas) add(format string, args ...any) {
	fmt.Fprintf(&c.body, format, args...)
	c.body.WriteByte('\n')
}

func (c *canvas) text(x, y float64, class, s string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, escape(s))
}

// vertical draws a text that is read upwards.
func (c *canvas) vertical(x, y float64, s string) {
	c.add(`<text transform="translate(%.1f %.1f) rotate(-90)" class="m">%s</text>`, x, y, escape(s))
}

func (c *canvas) line(x1, y1, x2, y2 float64, class string) {
	c.add(`<path d="M%.1f %.1fL%.1f %.1f" class="%s"/>`, x1, y1, x2, y2, class)
}

// box draws a rectangle with a tooltip.
func (c *canvas) box(x, y, w, h float64, fill, tip string) {
	c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s" data-tip="%s"><title>%s</title></rect>`,
		x, y, w, h, fill, escape(tip), escape(tip))
}

// marks are the shapes of points, which can be told apart without colour.
var marks = []string{"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0z", "M-4-4h8v8h-8z", "M0-5L5 4H-5z", "M0-6L6 0L0 6L-6 0z", "M-4-4L4 4M-4 4L4-4", "M-5 0H5M0-5V5"}

// mark draws a point of series i with a tooltip.
func (c *canvas) mark(x, y float64, i int, fill, tip string) {
	c.add(`<path transform="translate(%.1f %.1f)" d="%s" fill="%s" stroke="#111" data-tip="%s"><title>%s</title></path>`,
		x, y, marks[i%len(marks)], fill, escape(tip), escape(tip))
}

// shade returns a colour that darkens as v goes from 0 to 1: its lightness falls evenly, so that
// the shades keep their order in greyscale. The hue goes from pale yellow to dark blue.
func shade(v float64) string {
	stops := [][3]float64{{255, 250, 214}, {186, 222, 178}, {76, 160, 170}, {40, 90, 140}, {22, 28, 84}}
	v = min(max(v, 0), 1) * float64(len(stops)-1)
	i := min(int(v), len(stops)-2)
	f := v - float64(i)
	var rgb [3]int
	for k := range rgb {
		rgb[k] = int(stops[i][k] + (stops[i+1][k]-stops[i][k])*f + 0.5)
	}
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
}

// isDark reports whether white text is easier to read on that shade than black. The contrast of the
// better colour is nowhere below 4.3 (WCAG 2.2, section 1.4.3).
func isDark(v float64) bool { return v > 0.6 }
