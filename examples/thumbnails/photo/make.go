package photo

import (
	"bytes"
	"image"
	"image/jpeg"
	"math"
	"math/rand/v2"
)

// Make draws a photograph from a number, the same one each time: hills before a sky, with the grain
// of a camera.
func Make(seed uint64, width, height int) ([]byte, error) {
	numbers := rand.New(rand.NewPCG(seed, 0))
	m := image.NewRGBA(image.Rect(0, 0, width, height))
	ridges := make([]ridge, 4)
	for i := range ridges {
		ridges[i] = newRidge(numbers, height, i)
	}
	for y := range height {
		for x := range width {
			at := m.PixOffset(x, y)
			paint(m.Pix[at:at+4], numbers, ridges, x, y)
		}
	}
	var file bytes.Buffer
	err := jpeg.Encode(&file, m, &jpeg.Options{Quality: 90})
	return file.Bytes(), err
}

// ridge is a line of hills; the area below it has its colour.
type ridge struct {
	level, swing, wave, phase float64
	colour                    [3]float64
}

func newRidge(numbers *rand.Rand, height, i int) ridge {
	return ridge{
		level: float64(height) * (0.3 + 0.17*float64(i)), swing: 20 + 40*numbers.Float64(),
		wave: 0.004 + 0.02*numbers.Float64(), phase: 6 * numbers.Float64(),
		colour: [3]float64{60 + 90*numbers.Float64(), 80 + 90*numbers.Float64(), 40 + 60*numbers.Float64()},
	}
}

func paint(pixel []byte, numbers *rand.Rand, ridges []ridge, x, y int) {
	colour, light := [3]float64{120, 160, 220}, 1+float64(y)/2000
	for _, r := range ridges {
		if float64(y) > r.level+r.swing*math.Sin(r.wave*float64(x)+r.phase) {
			colour, light = r.colour, 1+0.15*math.Sin(float64(x)*0.31)*math.Sin(float64(y)*0.23)
		}
	}
	grain := float64(numbers.IntN(13) - 6)
	for i := range colour {
		pixel[i] = byte(min(max(colour[i]*light+grain, 0), 255))
	}
	pixel[3] = 255
}
