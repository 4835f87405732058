// Package plot draws figures as SVG, and as one self-contained HTML file: heat maps, charts and
// timelines.
//
// Figures are readable in greyscale: heat maps darken with the value and print it, series differ by
// their dashes and marks. They are readable by screen readers: each SVG has a title and a
// description, and HTML has the data as a table beside the figure.
package plot

import (
	"fmt"
	"io"
	"strings"
)

// Figure is a heat map, a chart or a timeline.
type Figure interface {
	// draw draws the figure, and returns its size and elements.
	draw() *canvas
	// text returns the figure's text for readers who do not see it.
	text() Text
	// table returns the data of the figure.
	table() table
}

// Text is the title and the description of a figure.
type Text struct {
	Title string
	// Description describes the contents of the figure in a sentence or two.
	Description string
}

// table is rows below titles.
type table struct {
	titles []string
	rows   [][]string
}

// The dimensions of a figure; all sizes are in CSS pixels.
const (
	width      = 760
	fontSize   = 13
	lineHeight = 17
	margin     = 14
)

// SVG writes figures below each other as one SVG document.
func SVG(w io.Writer, figures ...Figure) error {
	var body strings.Builder
	y := 0
	var titles, descriptions []string
	for _, f := range figures {
		c := f.draw()
		fmt.Fprintf(&body, "<g transform=\"translate(0 %d)\">\n%s</g>\n", y, c.body.String())
		y += c.height
		titles, descriptions = append(titles, f.text().Title), append(descriptions, f.text().Description)
	}
	_, err := fmt.Fprintf(w, svgHead+"%s</svg>\n", width, y, width, y,
		escape(strings.Join(titles, "; ")), escape(strings.Join(descriptions, " ")), svgStyle, body.String())
	return err
}

const svgHead = `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-labelledby="t d">
<title id="t">%s</title>
<desc id="d">%s</desc>
<style>%s</style>
<rect width="100%%" height="100%%" fill="#fff"/>
`

const svgStyle = `text{font:13px system-ui,sans-serif;fill:#111}.h{font-weight:600;font-size:15px}.s{font-size:11.5px;fill:#444}` +
	`.m{text-anchor:middle}.e{text-anchor:end}.w{fill:#fff}.k{fill:#111}.x{stroke:#111;fill:none}.g{stroke:#ddd;fill:none}` +
	`.o{stroke:#fff;stroke-width:3.5;stroke-linejoin:round;paint-order:stroke}[data-tip]:hover{stroke:#111;stroke-width:2}`

// HTML writes figures into one file without references to others. Each value has a tooltip; each
// figure's data is a table below it.
func HTML(w io.Writer, title string, figures ...Figure) error {
	if _, err := fmt.Fprintf(w, htmlHead, escape(title), svgStyle, escape(title)); err != nil {
		return err
	}
	for i, f := range figures {
		if err := section(w, i, f); err != nil {
			return err
		}
	}
	_, err := io.WriteString(w, htmlEnd)
	return err
}

func section(w io.Writer, i int, f Figure) error {
	c, t := f.draw(), f.text()
	_, err := fmt.Fprintf(w, `<section aria-labelledby="h%d"><h2 id="h%d">%s</h2><p>%s</p>
<figure><svg width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="%s"><desc>%s</desc>
%s</svg></figure>
<details><summary>The same as a table</summary><div class="scroll">%s</div></details></section>
`, i, i, escape(t.Title), escape(t.Description), width, c.height, width, c.height, escape(t.Title), escape(t.Description),
		c.body.String(), f.table().html(t.Title))
	return err
}

func (t table) html(caption string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<table><caption>%s</caption><thead><tr>", escape(caption))
	for _, title := range t.titles {
		fmt.Fprintf(&b, `<th scope="col">%s</th>`, escape(title))
	}
	b.WriteString("</tr></thead><tbody>\n")
	for _, row := range t.rows {
		b.WriteString("<tr>")
		for i, cell := range row {
			if i == 0 {
				fmt.Fprintf(&b, `<th scope="row">%s</th>`, escape(cell))
			} else {
				fmt.Fprintf(&b, "<td>%s</td>", escape(cell))
			}
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</tbody></table>")
	return b.String()
}

const htmlHead = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>%s</title>
<style>%s
body{font:15px/1.45 system-ui,sans-serif;color:#111;background:#fff;max-width:800px;margin:2em auto;padding:0 1em}
h1{font-size:22px}h2{font-size:17px;margin-top:2em}figure{margin:0}svg{max-width:100%%;height:auto}
table{border-collapse:collapse;font-variant-numeric:tabular-nums}caption{text-align:left;font-weight:600;padding:.4em 0}
th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #ddd}th{font-weight:600}.scroll{overflow-x:auto}
#tip{position:fixed;pointer-events:none;background:#111;color:#fff;padding:.25em .6em;border-radius:4px;font-size:13px;display:none;max-width:24em;z-index:9}
</style></head><body><h1>%s</h1><div id="tip" role="status"></div>
`

// htmlEnd shows the tooltip of the element under the pointer or with the keyboard's focus.
const htmlEnd = `<script>
const tip=document.getElementById("tip");
function show(e,x,y){tip.textContent=e.dataset.tip;tip.style.display="block";
 tip.style.left=Math.max(4,Math.min(x+14,innerWidth-tip.offsetWidth-8))+"px";tip.style.top=Math.max(4,y-tip.offsetHeight-10)+"px"}
document.addEventListener("mousemove",ev=>{const e=ev.target.closest&&ev.target.closest("[data-tip]");
 if(e)show(e,ev.clientX,ev.clientY);else tip.style.display="none"});
</script></body></html>
`
