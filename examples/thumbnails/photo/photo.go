// Package photo implements the image processing of the thumbnails example, for its functions
// and for the native program that is its reference.
package photo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/jpeg"
)

// The parameters of a thumbnail.
const (
	Width   = 320 // the height follows
	Radius  = 2   // the radius of the blur
	Quality = 85
)

// Alloc allocates memory for a picture: functions use the arena.
type Alloc func(size int) []byte

// Heap allocates ordinary memory.
func Heap(size int) []byte { return make([]byte, size) }

// header is the size of a picture's header: its width, its height and the subsampling of its
// colours, four bytes each, little-endian, and four bytes of padding.
const header = 16

// Picture is an uncompressed photograph in one piece, as passed from step to step: brightness, then
// the two colours, as in JPEG, each a byte for a pixel, row by row. Usually there is one pixel of
// colour for four of brightness.
type Picture []byte

// maxSide bounds a picture's width and height: JPEG has 16 bits for each.
const maxSide = 1<<16 - 1

// New returns a new picture. Its sides are at most maxSide long.
func New(alloc Alloc, width, height int, ratio image.YCbCrSubsampleRatio) Picture {
	p := Picture(alloc(size(width, height, ratio)))
	binary.LittleEndian.PutUint32(p, uint32(width))
	binary.LittleEndian.PutUint32(p[4:], uint32(height))
	binary.LittleEndian.PutUint32(p[8:], uint32(ratio))
	return p
}

func size(width, height int, ratio image.YCbCrSubsampleRatio) int {
	w, h := colours(width, height, ratio)
	return header + width*height + 2*w*h
}

// colours returns the size of the planes of colour.
func colours(width, height int, ratio image.YCbCrSubsampleRatio) (w, h int) {
	across, down := 1, 1
	switch ratio {
	case image.YCbCrSubsampleRatio422:
		across = 2
	case image.YCbCrSubsampleRatio420:
		across, down = 2, 2
	case image.YCbCrSubsampleRatio440:
		down = 2
	case image.YCbCrSubsampleRatio411:
		across = 4
	case image.YCbCrSubsampleRatio410:
		across, down = 4, 2
	case image.YCbCrSubsampleRatio444:
	}
	return (width + across - 1) / across, (height + down - 1) / down
}

var errPicture = errors.New("read picture: its size does not match")

// Check returns b as a picture, or an error if it is none.
func Check(b []byte) (Picture, error) {
	if len(b) < header {
		return nil, errPicture
	}
	p := Picture(b)
	width, height, ratio := p.about()
	if width < 1 || width > maxSide || height < 1 || height > maxSide || ratio > image.YCbCrSubsampleRatio410 || size(width, height, ratio) != len(b) {
		return nil, errPicture
	}
	return p, nil
}

func (p Picture) about() (width, height int, ratio image.YCbCrSubsampleRatio) {
	number := func(at int) int { return int(binary.LittleEndian.Uint32(p[at:])) }
	return number(0), number(4), image.YCbCrSubsampleRatio(number(8))
}

// Size returns width and height.
func (p Picture) Size() (width, height int) {
	width, height, _ = p.about()
	return width, height
}

// plane is one of a picture's three planes.
type plane struct {
	width, height int
	pixels        []byte
}

func (p plane) row(y int) []byte { return p.pixels[y*p.width : (y+1)*p.width] }

func (p Picture) planes() [3]plane {
	width, height, ratio := p.about()
	w, h := colours(width, height, ratio)
	blue := header + width*height
	red := blue + w*h
	return [3]plane{
		{width, height, p[header:blue]},
		{w, h, p[blue:red]},
		{w, h, p[red : red+w*h]},
	}
}

// image returns the picture as an image of Go's library that shares the pixels.
func (p Picture) image() *image.YCbCr {
	width, height, ratio := p.about()
	all := p.planes()
	return &image.YCbCr{
		Y: all[0].pixels, Cb: all[1].pixels, Cr: all[2].pixels, YStride: width, CStride: all[1].width,
		SubsampleRatio: ratio, Rect: image.Rect(0, 0, width, height),
	}
}

// Decode decodes a JPEG.
func Decode(alloc Alloc, file []byte) (Picture, error) {
	decoded, err := jpeg.Decode(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if m, ok := decoded.(*image.YCbCr); ok {
		return fromYCbCr(alloc, m), nil
	}
	return fromAny(alloc, decoded), nil
}

func fromYCbCr(alloc Alloc, m *image.YCbCr) Picture {
	p := New(alloc, m.Rect.Dx(), m.Rect.Dy(), m.SubsampleRatio)
	all := p.planes()
	for i, from := range [][]byte{m.Y[m.YOffset(m.Rect.Min.X, m.Rect.Min.Y):], m.Cb, m.Cr} {
		stride := m.CStride
		if i == 0 {
			stride = m.YStride
		}
		for y := range all[i].height {
			copy(all[i].row(y), from[y*stride:])
		}
	}
	return p
}

// fromAny converts a photograph in grey or CMYK.
func fromAny(alloc Alloc, m image.Image) Picture {
	bounds := m.Bounds()
	p := New(alloc, bounds.Dx(), bounds.Dy(), image.YCbCrSubsampleRatio444)
	to := p.image()
	for y := range bounds.Dy() {
		for x := range bounds.Dx() {
			r, g, b, _ := m.At(bounds.Min.X+x, bounds.Min.Y+y).RGBA()
			at := y*bounds.Dx() + x
			to.Y[at], to.Cb[at], to.Cr[at] = color.RGBToYCbCr(byte(r>>8), byte(g>>8), byte(b>>8))
		}
	}
	return p
}

// Encode encodes a picture as a JPEG.
func Encode(alloc Alloc, p Picture) ([]byte, error) {
	var file bytes.Buffer
	if err := jpeg.Encode(&file, p.image(), &jpeg.Options{Quality: Quality}); err != nil {
		return nil, err
	}
	b := alloc(file.Len())
	copy(b, file.Bytes())
	return b, nil
}

// Thumbnail runs all four steps.
func Thumbnail(file []byte) ([]byte, error) {
	p, err := Decode(Heap, file)
	if err != nil {
		return nil, err
	}
	return Encode(Heap, Blur(Heap, Resize(Heap, p)))
}
