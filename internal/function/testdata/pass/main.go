// Command pass is a step of a chain: it returns its request, in the same place.
package main

import guest "github.com/outboard-run/outboard/guest/go"

func init() { guest.Handle(func(request []byte) ([]byte, error) { return request, nil }) }

func main() {}
