// Command small is the smallest function in Go, with a heap that its start filled.
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

// count looks a key up and counts it. It returns 1 more than the count at the start: the state of
// another request would show.
func count(key []byte) ([]byte, error) {
	seen[string(key)]++
	return strconv.AppendInt(nil, int64(seen[string(key)]), 10), nil
}
