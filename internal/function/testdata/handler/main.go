// Command handler is a function for measurements: it does what handlers do.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"sort"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
)

var seen = map[string]int{}

func init() {
	for i := range 1000 {
		seen[fmt.Sprint("key", i)] = i
	}
	guest.Handle(handle)
}

func main() {}

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := bytes.Cut(request, []byte(" "))
	if string(verb) == "echo" {
		return rest, nil
	}
	return work(rest)
}

type item struct {
	Name  string   `json:"name"`
	Count int      `json:"count"`
	Tags  []string `json:"tags"`
}

// work reads JSON, looks things up, sorts, and writes JSON.
func work(b []byte) ([]byte, error) {
	var items []item
	if err := json.Unmarshal(b, &items); err != nil {
		return nil, err
	}
	for i := range items {
		items[i].Count += seen[items[i].Name]
		items[i].Tags = append(items[i].Tags, strings.ToUpper(items[i].Name), fmt.Sprint(crc32.ChecksumIEEE([]byte(items[i].Name))))
	}
	sort.Slice(items, func(i, j int) bool { return items[i].Count > items[j].Count })
	return json.Marshal(items)
}
