package oneshot

import (
	"errors"
	"io"
	"testing"

	"github.com/outboard-run/outboard/fabric/call"
)

func TestOnly(t *testing.T) {
	broken, none, many := errors.New("broken"), errors.New("none"), errors.New("many")
	for name, test := range map[string]struct {
		messages int
		end      error
		want     error
		freed    int
	}{
		"one":                 {1, io.EOF, nil, 0},
		"none":                {0, io.EOF, none, 0},
		"two":                 {2, io.EOF, many, 2},
		"broken":              {0, broken, broken, 0},
		"one and then broken": {1, broken, broken, 1},
	} {
		t.Run(name, func(t *testing.T) {
			left, freed := test.messages, 0
			m, err := Only(func() (*call.Message, error) {
				if left--; left < 0 {
					return nil, test.end
				}
				return &call.Message{Release: func() { freed++ }}, nil
			}, none, many)
			if !errors.Is(err, test.want) || (m != nil) != (test.want == nil) || freed != test.freed {
				t.Errorf("%v, %v, %d freed", m, err, freed)
			}
		})
	}
}
