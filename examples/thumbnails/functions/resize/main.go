// Command resize is the step of the thumbnails example that reduces a picture.
package main

import (
	"github.com/outboard-run/outboard/examples/thumbnails/photo"
	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(resize) }

func main() {}

func resize(request []byte) ([]byte, error) {
	p, err := photo.Check(request)
	if err != nil {
		return nil, err
	}
	return photo.Resize(guest.Alloc, p), nil
}
