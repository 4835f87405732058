// Command blur is the step of the thumbnails example that blurs a picture.
package main

import (
	"github.com/outboard-run/outboard/examples/thumbnails/photo"
	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(blur) }

func main() {}

func blur(request []byte) ([]byte, error) {
	p, err := photo.Check(request)
	if err != nil {
		return nil, err
	}
	return photo.Blur(guest.Alloc, p), nil
}
