package bounded

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

func TestMembers(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		depth int
		count int
	}{
		"an object":               {`{"a":1,"b":2}`, 1, 2},
		"commas in strings":       {`{"a,b":",\",","c":"\\"}`, 1, 2},
		"an array in an array":    {`[[1,2,3],[4]]`, 1, 2},
		"down to the inner array": {`[[1,2,3],[4]]`, 2, 6},
		"after the inner array":   {`[[1,2,3],4,5]`, 1, 3},
		"a number":                {`5`, 1, 0},
		"no JSON":                 {`]]],"`, 1, 1},
	} {
		if err := Members([]byte(c.text), c.depth, c.count); err != nil {
			t.Errorf("%s: at most %d: %v", name, c.count, err)
		}
		if err := Members([]byte(c.text), c.depth, c.count-1); c.count > 0 && outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: at most %d: %v", name, c.count-1, err)
		}
	}
}

// A list or a map that has too many elements is refused, and its elements are not decoded.
func TestListsAndMapsAreBounded(t *testing.T) {
	var q struct {
		List List[struct{ Text string }] `json:"list"`
		Map  Map[int]                    `json:"map"`
	}
	if err := json.Unmarshal([]byte(`{"list":[{"text":"a"},{"text":"b"}],"map":{"x":1}}`), &q); err != nil || len(q.List) != 2 || q.List[1].Text != "b" || q.Map["x"] != 1 {
		t.Errorf("%+v: %v", q, err)
	}
	if err := json.Unmarshal([]byte(`{"list":null,"map":null}`), &q); err != nil || len(q.List) != 0 || len(q.Map) != 0 {
		t.Errorf("null: %+v: %v", q, err)
	}
	for name, text := range map[string]string{
		"list":    `{"list":[` + strings.Repeat(`{},`, maxList) + `{}]}`,
		"no list": `{"list":[` + strings.Repeat(`0,`, maxList) + `0]}`,
		"map":     `{"map":{` + strings.Repeat(`"a":1,`, maxList) + `"b":1}}`,
	} {
		q.List, q.Map = nil, nil
		if err := json.Unmarshal([]byte(text), &q); outboard.KindOf(err) != outboard.Invalid || len(q.List)+len(q.Map) > 0 {
			t.Errorf("%s: %v, %d and %d elements", name, err, len(q.List), len(q.Map))
		}
	}
}

// A text is counted the same in parts.
func TestScannerOfParts(t *testing.T) {
	text := []byte(`{"a":[1,2,{"b\",":"\\"}],"c":"[,"}`)
	const want = 6
	for size := 1; size <= len(text); size++ {
		var s Scanner
		got := int64(0)
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			got += s.Values(rest[:min(size, len(rest))])
		}
		if got != want {
			t.Errorf("in parts of %d bytes: %d values, want %d", size, got, want)
		}
	}
}
