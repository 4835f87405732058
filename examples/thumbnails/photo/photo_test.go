package photo

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"image"
	"image/color"
	"image/jpeg"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func picture(t testing.TB, width, height int) Picture {
	t.Helper()
	file, err := Make(7, width, height)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(Heap, file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDecode(t *testing.T) {
	file, err := Make(7, 333, 77)
	if err != nil {
		t.Fatal(err)
	}
	want, err := jpeg.Decode(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(Heap, file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(p); err != nil {
		t.Error(err)
	}
	same(t, want, p.image())
	if _, err := Decode(Heap, file[:100]); err == nil {
		t.Error("half a file was read")
	}
}

func TestDecodeGrey(t *testing.T) {
	grey := image.NewGray(image.Rect(0, 0, 20, 10))
	for i := range grey.Pix {
		grey.Pix[i] = byte(i)
	}
	var file bytes.Buffer
	if err := jpeg.Encode(&file, grey, &jpeg.Options{Quality: 100}); err != nil {
		t.Fatal(err)
	}
	p, err := Decode(Heap, file.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	want, err := jpeg.Decode(&file)
	if err != nil {
		t.Fatal(err)
	}
	same(t, want, p.image())
}

func same(t *testing.T, want, got image.Image) {
	t.Helper()
	if want.Bounds() != got.Bounds() {
		t.Fatalf("got %v, want %v", got.Bounds(), want.Bounds())
	}
	for y := range want.Bounds().Dy() {
		for x := range want.Bounds().Dx() {
			if a, b := color.RGBAModel.Convert(want.At(x, y)), color.RGBAModel.Convert(got.At(x, y)); a != b {
				t.Fatalf("at %d, %d: got %v, want %v", x, y, b, a)
			}
		}
	}
}

// TestResize compares with the mean, written without haste.
func TestResize(t *testing.T) {
	p := picture(t, 1023, 501)
	small := Resize(Heap, p)
	if w, h := small.Size(); w != Width || h != 501*Width/1023 {
		t.Fatalf("got %d x %d", w, h)
	}
	from, to := p.planes(), small.planes()
	for i := range to {
		for y := range to[i].height {
			for x := range to[i].width {
				if want := meanOf(from[i], x, y, to[i]); to[i].row(y)[x] != want {
					t.Fatalf("plane %d at %d, %d: got %d, want %d", i, x, y, to[i].row(y)[x], want)
				}
			}
		}
	}
	if again := Resize(Heap, small); &again[0] != &small[0] {
		t.Error("a small picture was resized")
	}
}

func meanOf(from plane, x, y int, to plane) byte {
	sum, n := 0, 0
	for row := y * from.height / to.height; row < (y+1)*from.height/to.height; row++ {
		for column := x * from.width / to.width; column < (x+1)*from.width/to.width; column++ {
			sum, n = sum+int(from.row(row)[column]), n+1
		}
	}
	return byte(sum / n)
}

func TestBlur(t *testing.T) {
	p := picture(t, 61, 33)
	blurred := Blur(Heap, p)
	from, to := p.planes(), blurred.planes()
	for i := range to {
		for y := range to[i].height {
			for x := range to[i].width {
				sum := 0
				for down := -Radius; down <= Radius; down++ {
					line := 0
					for across := -Radius; across <= Radius; across++ {
						line += int(from[i].row(inside(y+down, from[i].height))[inside(x+across, from[i].width)])
					}
					sum += line / window
				}
				if want := byte(sum / window); to[i].row(y)[x] != want {
					t.Fatalf("plane %d at %d, %d: got %d, want %d", i, x, y, to[i].row(y)[x], want)
				}
			}
		}
	}
}

func TestThumbnail(t *testing.T) {
	file, err := Make(1, 640, 480)
	if err != nil {
		t.Fatal(err)
	}
	small, err := Thumbnail(file)
	if err != nil {
		t.Fatal(err)
	}
	m, err := jpeg.Decode(bytes.NewReader(small))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(image.Pt(Width, 240), m.Bounds().Size()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestMakeIsTheSame(t *testing.T) {
	a, err := Make(3, 64, 48)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := Make(3, 64, 48)
	other, _ := Make(4, 64, 48)
	if !bytes.Equal(a, b) || bytes.Equal(a, other) {
		sum := sha256.Sum256(a)
		t.Errorf("got %s", hex.EncodeToString(sum[:]))
	}
}

func FuzzCheck(f *testing.F) {
	f.Add([]byte(picture(f, 16, 9)))
	f.Add(make([]byte, header))
	f.Add([]byte{255, 255, 0, 0, 255, 255, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := Check(b)
		if err != nil {
			return
		}
		if _, err := Encode(Heap, Blur(Heap, Resize(Heap, p))); err != nil {
			t.Error(err)
		}
	})
}
