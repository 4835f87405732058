// Package work does the work of typical handlers, for functions of tests and measurements.
package work

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"sort"
	"strings"
)

type item struct {
	Name  string   `json:"name"`
	Count int      `json:"count"`
	Tags  []string `json:"tags"`
}

// Handle reads JSON, looks things up, sorts, and writes JSON.
func Handle(b []byte, known map[string]int) ([]byte, error) {
	var items []item
	if err := json.Unmarshal(b, &items); err != nil {
		return nil, err
	}
	for i := range items {
		items[i].Count += known[items[i].Name]
		items[i].Tags = append(items[i].Tags, strings.ToUpper(items[i].Name), fmt.Sprint(crc32.ChecksumIEEE([]byte(items[i].Name))))
	}
	sort.Slice(items, func(i, j int) bool { return items[i].Count > items[j].Count })
	return json.Marshal(items)
}
