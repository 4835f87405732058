package main

import (
	"bytes"
	"image"
	"image/color"
	"image/png"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/examples/digits/picture"
	"github.com/outboard-run/outboard/guest/go/nn"
)

// The function tested without Outboard: nn.Fake is the model.
func TestRecognize(t *testing.T) {
	nn.Fake = func(model string, inputs []nn.Tensor) ([][]byte, error) {
		if model != "digits" || len(inputs) != 1 || len(inputs[0].Data) != 4*picture.Pixels {
			t.Errorf("%s got %d inputs", model, len(inputs))
		}
		return [][]byte{nn.Floats([]float32{0, .1, .2, .7, 0, 0, 0, 0, 0, 0}).Data}, nil
	}
	defer func() { nn.Fake = nil }()
	dot := image.NewGray(image.Rect(0, 0, 50, 50))
	for i := range dot.Pix {
		dot.Pix[i] = 255
	}
	var empty, full bytes.Buffer
	if err := png.Encode(&empty, dot); err != nil {
		t.Fatal(err)
	}
	dot.SetGray(10, 10, color.Gray{})
	if err := png.Encode(&full, dot); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		body   string
		status int
		want   string
	}{
		"a picture": {full.String(), http.StatusOK, `"digit":3,`},
		"empty":     {empty.String(), http.StatusBadRequest, "draw dark on white"},
		"no PNG":    {"x", http.StatusBadRequest, "want a PNG"},
	} {
		w := httptest.NewRecorder()
		recognize(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/recognize", strings.NewReader(c.body)))
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}
