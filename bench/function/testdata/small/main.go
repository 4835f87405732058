// Command small is the least function in Go, with a heap that its start filled.
package main

import (
	"strconv"

	guest "github.com/outboard-run/outboard/guest/go"
)

var seen = map[string]int{}

func init() {
	for i := range 1000 {
		seen["key"+strconv.Itoa(i)] = i
	}
	guest.Handle(count)
}

func main() {}

// count looks a key up and counts it. It says 1 more than was there at the start: state
// of another request would show.
func count(key []byte) ([]byte, error) {
	seen[string(key)]++
	return strconv.AppendInt(nil, int64(seen[string(key)]), 10), nil
}
