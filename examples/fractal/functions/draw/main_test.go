package main

import (
	"image/png"
	"net/http/httptest"
	"testing"

	"github.com/outboard-run/outboard/guest/go/guesttest"
)

// TestPicture runs without Outboard, on a device whose kernel is written in Go.
func TestPicture(t *testing.T) {
	gpu := guesttest.Start(t).Device("gpu")
	gpu.Kernels["mandelbrot"] = func(l guesttest.Launch) {
		for i := range l.Args[0] {
			l.Args[0][i] = byte(i % l.Global[0]) // stripes
		}
	}
	w := httptest.NewRecorder()
	picture(w, httptest.NewRequest("GET", "/picture?size=16", nil))
	p, err := png.Decode(w.Body)
	if err != nil || p.Bounds().Dx() != 16 || p.Bounds().Dy() != 16 || p.At(0, 3) != p.At(0, 9) || p.At(3, 0) == p.At(9, 0) {
		t.Errorf("got %v, %v", p, err)
	}
}

func TestWrongRequests(t *testing.T) {
	guesttest.Start(t)
	for query, want := range map[string]int{
		"size=0": 400, "size=4096": 400, "x=left": 400, "width=0": 400, "size=8": 503, // there is no device
	} {
		w := httptest.NewRecorder()
		if picture(w, httptest.NewRequest("GET", "/picture?"+query, nil)); w.Code != want {
			t.Errorf("%s: status %d, want %d: %s", query, w.Code, want, w.Body)
		}
	}
}
