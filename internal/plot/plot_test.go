package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

func number(v float64) string { return fmt.Sprintf("%g", v) }

const hostile = `<script>alert("&")</script>` + "\x00\x1b[2J\xff\uffff"

// figures are one of each kind, with words that are markup.
func figures() []Figure {
	t := Text{Title: "T " + hostile, Description: "D " + hostile}
	x, y := Axis{Title: "x", Format: number, Log: true}, Axis{Title: "y", Format: number, Log: true, Unlimited: 1000}
	return []Figure{
		&HeatMap{
			Text: t, X: x, Y: y, Xs: []float64{1, 10, 100}, Ys: []float64{10, 1000}, Values: [][]float64{{1, 2, 3}, {1, 1, 1}},
			Format: number, Least: 1, Most: 3, Log: true, Marks: []Mark{{Name: hostile, X: 5, Y: 20}, {Name: "b", X: 5, Y: 20}},
		},
		&Chart{Text: t, X: x, Y: y, Diagonal: true, Series: []Series{
			{Name: hostile, Points: []Point{{X: 1, Y: 10, Low: 8, High: 12, Name: hostile}, {X: 100, Y: 20}}}, {Name: "s", Scatter: true, Points: []Point{{X: 3, Y: 4}}},
		}},
		&Chart{Text: t, X: x, Y: y},
		&Timeline{Text: t, Kinds: []string{"a", "b"}, Format: number, Groups: []TimelineGroup{
			{Name: hostile, Rows: []TimelineRow{{Name: "r", Spans: []Span{{Begin: 0, End: 5, Kind: 1, Name: hostile}}}}},
		}},
		&Timeline{Text: t, Kinds: []string{"a"}, Format: number},
	}
}

func TestSVGIsWellFormedAndNamed(t *testing.T) {
	for i, f := range figures() {
		var out bytes.Buffer
		if err := SVG(&out, f); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); strings.Contains(text, hostile) || !strings.Contains(text, "<title id=\"t\">T &lt;script") ||
			!strings.Contains(text, "<desc id=\"d\">D &lt;script") || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("figure %d: %s", i, text)
		}
		d := xml.NewDecoder(&out)
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("figure %d: %v", i, err)
			}
		}
	}
}

// A pool, or a hostile node of it, has more devices than a figure has space for names: all are marks
// and in the table, and the names stay within the figure.
func TestManyMarks(t *testing.T) {
	axis := Axis{Format: number, Log: true}
	h := &HeatMap{X: axis, Y: axis, Xs: []float64{1, 10}, Ys: []float64{10, 100, 1000}, Values: [][]float64{{1, 2}, {1, 2}, {1, 2}}, Format: number, Least: 1, Most: 2}
	const marks = 20_000
	for range marks {
		h.Marks = append(h.Marks, Mark{Name: "device", X: 3, Y: 500, Note: "fast"})
	}
	text := h.draw().body.String()
	names := 0
	for line := range strings.Lines(text) {
		var x, y float64
		if strings.HasSuffix(line, ">device</text>\n") {
			names++
			if _, err := fmt.Sscanf(line, `<text x="%g" y="%g"`, &x, &y); err != nil || y < 0 || y > 200 {
				t.Errorf("a name at %g, %g: %v", x, y, err)
			}
		}
	}
	if drawn := strings.Count(text, "<title>device: fast</title>"); names < 2 || names > 20 || drawn != marks || len(h.table().rows) != 3+marks {
		t.Errorf("%d names, %d marks, %d rows", names, drawn, len(h.table().rows))
	}
}

func TestHTMLHasATableAndNoReferences(t *testing.T) {
	var out bytes.Buffer
	if err := HTML(&out, "all "+hostile, figures()...); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if n := strings.Count(text, "<table>"); n != len(figures()) {
		t.Errorf("%d tables for %d figures", n, len(figures()))
	}
	for _, bad := range []string{hostile, "http://", "https://", "src=", "href="} {
		if strings.Contains(text, bad) {
			t.Errorf("it contains %q", bad)
		}
	}
}

// An axis reaches what it is told to reach, and further where points are.
func TestAxesReachTheirRange(t *testing.T) {
	c := &Chart{
		X:      Axis{Format: number, Log: true, Least: 1, Most: 1000},
		Y:      Axis{Format: number, Log: true},
		Series: []Series{{Points: []Point{{X: 10, Y: 5}, {X: 5000, Y: 7}}}},
	}
	x, y := c.scales(0, 100)
	if x.low > 1 || x.low < 0.5 || x.high < 5000 || x.high > 10_000 || y.low > 5 || y.high < 7 || y.high > 10 {
		t.Errorf("x from %g to %g, y from %g to %g", x.low, x.high, y.low, y.high)
	}
}

// Numbers that are too close to each other for their size, and infinite ones, end as well.
func TestTicksOfExtremes(t *testing.T) {
	for _, r := range [][2]float64{{1e17, 1e17 + 16}, {-1e300, 1e300}, {0, math.Inf(1)}, {math.NaN(), 1}, {math.MaxFloat64 / 2, math.MaxFloat64}, {0, 5e-324}} {
		for _, log := range []bool{false, true} {
			s := scale{axis: Axis{Log: log}, low: r[0], high: r[1]}
			if n := len(s.ticks()); n > 100 {
				t.Errorf("%v, logarithmic %t: %d ticks", r, log, n)
			}
		}
	}
}

// Shades keep their order without colour.
func TestShadesDarken(t *testing.T) {
	last := 1e9
	for i := range 101 {
		var r, g, b int
		if _, err := fmt.Sscanf(shade(float64(i)/100), "#%02x%02x%02x", &r, &g, &b); err != nil {
			t.Fatal(err)
		}
		luma := 0.2126*float64(r) + 0.7152*float64(g) + 0.0722*float64(b)
		if luma >= last {
			t.Fatalf("shade %d%% is lighter than the one before", i)
		}
		last = luma
	}
}

func TestTicksLieWithinTheScale(t *testing.T) {
	for _, s := range []scale{
		{axis: Axis{Log: true}, low: 5e-6, high: 5e-3},
		{axis: Axis{Log: true}, low: 1e6, high: 1e12},
		{axis: Axis{Log: true}, low: 3, high: 4},
		{low: 0, high: 0.37},
		{low: 10, high: 10},
	} {
		ticks := s.ticks()
		if len(ticks) > 12 {
			t.Errorf("%v: %d ticks", s, len(ticks))
		}
		for _, v := range ticks {
			if v < s.low*(1-1e-6) || v > s.high*(1+1e-6)+1e-12 {
				t.Errorf("%v: tick %g", s, v)
			}
		}
	}
}

// Text on every shade is black or white, whichever is easier to read, and darker shades are darker
// in greyscale, too.
func TestTextIsReadableOnEveryShade(t *testing.T) {
	last := 2.0
	for i := range 101 {
		v := float64(i) / 100
		light := luminance(t, shade(v))
		if light >= last {
			t.Errorf("the shade of %.2f is not darker than the one before", v)
		}
		last = light
		text := luminance(t, "#111111")
		if isDark(v) {
			text = 1
		}
		if contrast := (max(light, text) + 0.05) / (min(light, text) + 0.05); contrast < 4.3 {
			t.Errorf("the contrast of text on the shade of %.2f is %.2f", v, contrast)
		}
	}
}

// luminance is the relative luminance of a color (WCAG 2.2).
func luminance(t *testing.T, color string) float64 {
	t.Helper()
	var rgb [3]int
	if _, err := fmt.Sscanf(color, "#%02x%02x%02x", &rgb[0], &rgb[1], &rgb[2]); err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		c := float64(rgb[i]) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}
