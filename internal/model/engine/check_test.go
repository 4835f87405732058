package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A batch of a trillion rows without an element would have the queue of the model expect that it is
// busy for years, and refuse all other requests.
func TestRowsWithoutElements(t *testing.T) {
	info := engine.Info{
		Inputs:         []model.Signature{{Name: "x", Type: model.FP32, Shape: []int64{-1, -1}}, {Name: "past", Type: model.FP32, Shape: []int64{-1, -1}}},
		BatchDimension: true,
	}
	tensor := func(name string, rows, width int64) model.Tensor {
		return model.Tensor{Name: name, Type: model.FP32, Shape: []int64{rows, width}, Data: make([]byte, min(rows, 8)*width*4)}
	}
	for name, c := range map[string]struct {
		rows, width int64
		valid       bool
	}{
		"a trillion": {1 << 40, 0, false}, "too many": {1025, 0, false}, "two": {2, 0, true}, "one": {1, 0, true}, "none": {0, 0, true}, "elements": {8, 1, true},
	} {
		rows, err := info.Check([]model.Tensor{tensor("x", c.rows, c.width), tensor("past", c.rows, 0)}, nil, false)
		if c.valid != (err == nil) || c.valid && int64(rows) != c.rows {
			t.Errorf("%s: %d rows, %v", name, rows, err)
		}
		if want := fmt.Sprintf(`input "x" has the shape [%d 0]`, c.rows); !c.valid && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
}
