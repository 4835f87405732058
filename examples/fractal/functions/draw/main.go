// Command draw draws parts of the Mandelbrot set on a device of the pool.
//
//	GET /picture?x=-0.75&y=0.1&width=0.01&size=512      a PNG
package main

import (
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/color/palette"
	"image/png"
	"net/http"
	"strconv"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/web"
)

func init() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /picture", picture)
	mux.HandleFunc("GET /device", device)
	web.Handle(mux)
}

func main() {}

// kernel computes the escape time of each point.
const kernel = `
kernel void mandelbrot(global uchar *out, float left, float top, float step, uint most) {
	size_t i = get_global_id(0), j = get_global_id(1);
	float cx = left + i * step, cy = top - j * step, x = 0, y = 0;
	uint n = 0;
	for (; n < most && x * x + y * y < 4; n++) {
		float t = x * x - y * y + cx;
		y = 2 * x * y + cy;
		x = t;
	}
	out[j * get_global_size(0) + i] = n == most ? 0 : 1 + n % 215;
}`

// view is a square of the plane.
type view struct {
	x, y, width float32
	size        int
}

func picture(w http.ResponseWriter, r *http.Request) {
	v := view{-0.75, 0, 2.5, 512}
	if err := v.read(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	points, err := v.draw()
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "image/png")
	colors := append(color.Palette{color.Black}, palette.WebSafe[1:]...)
	_ = png.Encode(w, &image.Paletted{Pix: points, Stride: v.size, Rect: image.Rect(0, 0, v.size, v.size), Palette: colors}) // the client hung up
}

// draw returns the number of each point's color.
func (v view) draw() ([]byte, error) {
	gpu, err := guest.ImportDevice("gpu")
	if err != nil {
		return nil, err
	}
	const most = 1000
	points := gpu.Buffer(v.size * v.size)
	gpu.Program(kernel).Launch("mandelbrot", guest.Items(v.size, v.size),
		points, v.x-v.width/2, v.y+v.width/2, v.width/float32(v.size), uint32(most))
	return points.Read(0, points.Size())
}

const (
	largest = 2048
	finest  = 1e-5 // below it the precision of float32 does not suffice
)

// read parses the view from the request's query.
func (v *view) read(r *http.Request) error {
	for name, to := range map[string]*float32{"x": &v.x, "y": &v.y, "width": &v.width} {
		if text := r.FormValue(name); text != "" {
			n, err := strconv.ParseFloat(text, 32)
			if err != nil {
				return fmt.Errorf("%s=%q is no number", name, text)
			}
			*to = float32(n)
		}
	}
	if text := r.FormValue("size"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > largest {
			return fmt.Errorf("size=%q: want 1 to %d", text, largest)
		}
		v.size = n
	}
	if v.width < finest || v.width > 10 {
		return fmt.Errorf("width=%g: want %g to 10", v.width, finest)
	}
	return nil
}

// device responds with the description of the device.
func device(w http.ResponseWriter, _ *http.Request) {
	gpu, err := guest.ImportDevice("gpu")
	var info guest.DeviceInfo
	if err == nil {
		var text []byte
		if text, err = gpu.Info(); err == nil {
			err = json.Unmarshal(text, &info)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintf(w, "%s on %s\n", info.Name, info.Node)
}
