package worker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/accel/opencl"
)

// A program is built by the process of its first launch, and by one of its own only without a launch
// that is to be compiled.
func TestPlan(t *testing.T) {
	program := func(key string) opencl.Recipe {
		return opencl.Recipe{Key: key, Program: &opencl.ProgramRecipe{Source: []byte(key)}}
	}
	launch := func(key, program string) opencl.Recipe {
		return opencl.Recipe{Key: key, Launch: &opencl.LaunchRecipe{Program: program, Kernel: key}}
	}
	binaries := func(key, program string) opencl.Recipe { return opencl.Recipe{Key: key, Binaries: program} }
	tests := map[string]struct {
		recipes []opencl.Recipe
		known   []string
		want    [][]string // the keys of each step
	}{
		"nothing":              {},
		"program":              {recipes: []opencl.Recipe{program("p")}, want: [][]string{{"p"}}},
		"launches":             {recipes: []opencl.Recipe{program("p"), launch("a", "p"), launch("b", "p")}, want: [][]string{{"p", "a"}, {"b"}}},
		"two programs":         {recipes: []opencl.Recipe{program("p"), program("q"), launch("b", "q"), launch("a", "p")}, want: [][]string{{"p", "a"}, {"q", "b"}}},
		"known program":        {recipes: []opencl.Recipe{program("p"), launch("a", "p")}, known: []string{"p"}, want: [][]string{{"a"}}},
		"known launch":         {recipes: []opencl.Recipe{program("p"), launch("a", "p"), launch("b", "p")}, known: []string{"a"}, want: [][]string{{"p", "b"}}},
		"all known":            {recipes: []opencl.Recipe{program("p"), launch("a", "p")}, known: []string{"p", "a"}},
		"again":                {recipes: []opencl.Recipe{program("p"), launch("a", "p"), program("p"), launch("a", "p")}, want: [][]string{{"p", "a"}}},
		"binaries":             {recipes: []opencl.Recipe{program("p"), binaries("all", "p"), launch("a", "p")}, want: [][]string{{"p", "a"}, {"all"}}},
		"launch of no program": {recipes: []opencl.Recipe{launch("a", "p"), binaries("all", "p")}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			known := map[string]bool{}
			for _, key := range test.known {
				known[key] = true
			}
			var got [][]string
			for _, s := range plan(test.recipes, known) {
				got = append(got, s.keys)
				last := s.keys[len(s.keys)-1]
				if s.Program == nil || s.Launch != nil && s.Launch.Kernel != last || s.Binaries != (last == "all") {
					t.Errorf("step %v: %+v", s.keys, s)
				}
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("got (-), want (+):\n%s", diff)
			}
		})
	}
}
