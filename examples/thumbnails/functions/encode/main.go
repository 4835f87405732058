// Command encode is the step of the thumbnails example that encodes pixels as a JPEG.
package main

import (
	"github.com/outboard-run/outboard/examples/thumbnails/photo"
	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(encode) }

func main() {}

func encode(request []byte) ([]byte, error) {
	p, err := photo.Check(request)
	if err != nil {
		return nil, err
	}
	return photo.Encode(guest.Alloc, p)
}
