package cli

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/model"
)

// picture returns a PNG of 4 x 2 pixels: the left half red, the right half white.
func picture(t *testing.T) []byte {
	t.Helper()
	p := image.NewRGBA(image.Rect(0, 0, 4, 2))
	for i := range 8 {
		c := color.RGBA{R: 255, A: 255}
		if i%4 >= 2 {
			c.G, c.B = 255, 255
		}
		p.SetRGBA(i%4, i/4, c)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, p); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func floats(t *model.Tensor) []float32 {
	var list []float32
	for at := 0; at < len(t.Data); at += 4 {
		list = append(list, math.Float32frombits(binary.LittleEndian.Uint32(t.Data[at:])))
	}
	return list
}

// TestPictures converts one picture to each of the shapes that models have.
func TestPictures(t *testing.T) {
	const red = float32(0.299)
	for name, c := range map[string]struct {
		shape, want []int64
		values      []float32
	}{
		"grey":           {[]int64{2, 4}, []int64{2, 4}, []float32{red, red, 1, 1, red, red, 1, 1}},
		"smaller":        {[]int64{2, 2}, []int64{2, 2}, []float32{red, 1, red, 1}},
		"channels first": {[]int64{3, 1, 2}, []int64{3, 1, 2}, []float32{1, 1, 0, 1, 0, 1}},
		"channels last":  {[]int64{2, 2, 3}, []int64{2, 2, 3}, []float32{1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
		"batch":          {[]int64{-1, 3, 1, 2}, []int64{1, 3, 1, 2}, []float32{1, 1, 0, 1, 0, 1}},
		"NHWC":           {[]int64{-1, 2, 2, 3}, []int64{1, 2, 2, 3}, []float32{1, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1}},
		"flat":           {[]int64{4}, []int64{4}, []float32{red, 1, red, 1}},
	} {
		got, err := readPicture(bytes.NewReader(picture(t)), &model.Signature{Type: model.FP32, Shape: c.shape})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		near := func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-3 }
		if !slices.Equal(got.Shape, c.want) || !slices.EqualFunc(floats(&got), c.values, near) {
			t.Errorf("%s: got %v of shape %v, want %v of shape %v", name, floats(&got), got.Shape, c.values, c.want)
		}
	}
	for name, want := range map[string]model.Signature{
		"integers":   {Type: model.Int8, Shape: []int64{2, 4}},
		"no picture": {Type: model.FP32, Shape: []int64{2, 4, 7}},
		"no square":  {Type: model.FP32, Shape: []int64{5}},
	} {
		if got, err := readPicture(bytes.NewReader(picture(t)), &want); err == nil {
			t.Errorf("%s: got %v, want an error", name, got)
		}
	}
	if _, err := readPicture(strings.NewReader("no picture"), &model.Signature{Type: model.FP32, Shape: []int64{2, 4}}); err == nil {
		t.Error("text was read as a picture")
	}
}

// TestReadInputs assigns the values of the command line to the inputs of a model.
func TestReadInputs(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string][]byte{"p.png": picture(t), "v.json": []byte("[1, 2]"), "v.txt": []byte("[1, 2]")} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	x := model.Signature{Name: "x", Type: model.FP32, Shape: []int64{2}}
	y := model.Signature{Name: "y", Type: model.FP32, Shape: []int64{2, 4}}
	for _, values := range [][]string{{"x=[1, 2]"}, {"[1, 2]"}, {"@" + dir + "/v.json"}, {"x=@" + dir + "/v.json"}} {
		got, err := readInputs(values, []model.Signature{x})
		if err != nil || len(got) != 1 || got[0].Name != "x" || !slices.Equal(floats(&got[0]), []float32{1, 2}) {
			t.Errorf("%q: got %v, %v", values, got, err)
		}
	}
	both, err := readInputs([]string{"y=@" + dir + "/p.png", "x=[3, 4]"}, []model.Signature{x, y})
	if err != nil || len(both) != 2 || both[0].Name != "y" || len(both[0].Data) != 32 {
		t.Errorf("two inputs: got %v, %v", both, err)
	}
	for value, want := range map[string]string{
		"[1, 2]":                  "write NAME=VALUE",
		"z=[1]":                   `no input "z": it has x, y`,
		"x=@" + dir + "/v.txt":    "want a file that ends in",
		"x=@" + dir + "/gone.npy": "no such file",
		"x=[1, 2":                 "input x",
	} {
		if got, err := readInputs([]string{value}, []model.Signature{x, y}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, %v; want an error with %q", value, got, err, want)
		}
	}
	if _, err := readInputs([]string{"[1]"}, nil); err == nil || !strings.Contains(err.Error(), "outboard chat") {
		t.Errorf("a model for text: %v", err)
	}
}

// A file that is there is not lost to an output that the format has no place for.
func TestWriteOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.npy")
	x := model.Tensor{Name: "x", Type: model.FP32, Shape: []int64{1}, Data: make([]byte, 4)}
	if err := writeOutput(path, []model.Tensor{x}); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	texts := model.Tensor{Name: "texts", Type: model.Bytes, Shape: []int64{1}, Data: make([]byte, 4)}
	for want, outputs := range map[string][]model.Tensor{"BYTES": {texts}, "--output": {x, texts}, "one output": nil} {
		if err := writeOutput(path, outputs); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d outputs: %v, want %q", len(outputs), err, want)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, before) {
		t.Errorf("the file has changed: %d bytes, %v", len(after), err)
	}
}

func TestModelTexts(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{modelVersionText(3, 0, 0), "3"},
		{modelVersionText(3, 2, 0), "3 (as 2)"},
		{modelVersionText(3, 0, 10), "3 for 10 %"},
		{modelVersionText(3, 0, 100), "3"},
		{modelPath("a/b", ""), "/v2/models/a%2Fb"},
		{modelPath("m", "7"), "/v2/models/m/versions/7"},
		{keyLimitText(client.ModelKey{}), "-"},
		{keyLimitText(client.ModelKey{RequestsPerMinute: 5, TokensPerMinute: 900}), "5 requests, 900 tokens"},
		{safeText("a\x1b[2Jb\n\tc\u009bd\x7f"), "a[2Jb\n\tcd"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
