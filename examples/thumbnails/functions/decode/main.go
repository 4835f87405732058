// Command decode is the step of the thumbnails example that decodes a JPEG to pixels.
package main

import (
	"github.com/outboard-run/outboard/examples/thumbnails/photo"
	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(decode) }

func main() {}

func decode(file []byte) ([]byte, error) { return photo.Decode(guest.Alloc, file) }
