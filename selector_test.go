package outboard_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

var selectable = []outboard.Device{
	{ID: "harbour/opencl/0", Node: "harbour", API: outboard.OpenCL, Type: outboard.GPU, Name: "GeForce RTX", Vendor: "NVIDIA Corporation", Memory: 8 << 30, Units: 40},
	{ID: "harbour/opencl/1", Node: "harbour", API: outboard.OpenCL, Type: outboard.CPU, Name: "pthread-host", Vendor: "GenuineIntel", Memory: 2 << 30, Units: 2},
	{ID: "dinghy/opencl/0", Node: "dinghy", API: outboard.OpenCL, Type: outboard.GPU, Name: "Iris", Vendor: "Intel(R)", Memory: 1 << 30, Units: 24},
}

func TestSelect(t *testing.T) {
	for text, want := range map[string][]outboard.DeviceID{
		"":                                       {"harbour/opencl/0", "harbour/opencl/1", "dinghy/opencl/0"},
		"type=gpu":                               {"harbour/opencl/0", "dinghy/opencl/0"},
		"TYPE=GPU":                               {"harbour/opencl/0", "dinghy/opencl/0"},
		"type!=gpu":                              {"harbour/opencl/1"},
		"vendor~intel":                           {"harbour/opencl/1", "dinghy/opencl/0"},
		"vendor!~intel":                          {"harbour/opencl/0"},
		"memory>=2GiB":                           {"harbour/opencl/0", "harbour/opencl/1"},
		"memory>2GiB":                            {"harbour/opencl/0"},
		"memory<=1073741824":                     {"dinghy/opencl/0"},
		"memory<2GiB":                            {"dinghy/opencl/0"},
		"units=24":                               {"dinghy/opencl/0"},
		"units!=24":                              {"harbour/opencl/0", "harbour/opencl/1"},
		"type=gpu, memory>=4GiB ,vendor~nvidia,": {"harbour/opencl/0"},
		"dinghy/opencl/0":                        {"dinghy/opencl/0"},
		"id=dinghy/opencl/0":                     {"dinghy/opencl/0"},
		"name~a=b":                               nil,
	} {
		t.Run(text, func(t *testing.T) {
			s, err := outboard.ParseSelector(text)
			if err != nil {
				t.Fatal(err)
			}
			fit, err := s.Select(selectable)
			var got []outboard.DeviceID
			for _, d := range fit {
				got = append(got, d.ID)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Error(diff)
			}
			if (err != nil) != (want == nil) {
				t.Errorf("error %v with %d devices", err, len(want))
			}
		})
	}
}

func TestSelectSaysWhyNone(t *testing.T) {
	for text, want := range map[string]string{
		"type=gpu,memory>=16GiB":   `no device meets "memory>=16GiB"; they have 8GiB, 2GiB, 1GiB`,
		"vendor~amd":               `no device meets "vendor~amd"; they have "NVIDIA Corporation", "GenuineIntel", "Intel(R)"`,
		"units>100":                `no device meets "units>100"; they have 40, 2, 24`,
		"type=cpu,vendor~nvidia":   "each part is met by some device, but no device meets all of them",
		"node=harbour,memory<2GiB": "no device meets all of them",
	} {
		t.Run(text, func(t *testing.T) {
			s, err := outboard.ParseSelector(text)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Select(selectable)
			if outboard.KindOf(err) != outboard.NoDevice || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want NoDevice with %q", err, want)
			}
		})
	}
	if _, err := (outboard.Selector{}).Select(nil); err == nil || !strings.Contains(err.Error(), "outboard up") {
		t.Errorf("an empty pool: %v, want what to do", err)
	}
}

func TestParseSelectorRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"gpu":          "has no operator",
		"colour=red":   "is no field of a device",
		"type>gpu":     "compares text",
		"memory~2":     "is a number",
		"memory>=lots": "want a number with a unit",
		"units=-1":     "want a whole number",
		"=gpu":         "is no field",
	} {
		t.Run(text, func(t *testing.T) {
			_, err := outboard.ParseSelector(text)
			if outboard.KindOf(err) != outboard.Invalid || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want Invalid with %q", err, want)
			}
		})
	}
}

// What a selector prints, it reads again, and means the same by it.
func FuzzParseSelector(f *testing.F) {
	for _, text := range []string{"", "type=gpu", "memory>=4GiB,vendor~nvidia", "a/b/c", "id!=x", "units<3", "name~a=b", ",,", "memory>=0.1K"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := outboard.ParseSelector(text)
		if err != nil {
			if outboard.KindOf(err) != outboard.Invalid {
				t.Errorf("kind of %v", err)
			}
			return
		}
		again, err := outboard.ParseSelector(s.String())
		if err != nil {
			t.Fatalf("%q prints as %q, which is refused: %v", text, s, err)
		}
		for _, d := range selectable {
			if again.Match(d) != s.Match(d) {
				t.Errorf("%q prints as %q, which differs about %s", text, s, d.ID)
			}
		}
		if again.String() != s.String() {
			t.Errorf("%q prints as %q, then as %q", text, s, again)
		}
	})
}

// Each node compares the selectors of all waiting requests with all devices.
func TestSelectorsAreBounded(t *testing.T) {
	for name, text := range map[string]string{
		"parts": strings.Repeat("name!~x,", 65),
		"bytes": "name~" + strings.Repeat("x", 4<<10),
	} {
		if _, err := outboard.ParseSelector(text); outboard.KindOf(err) != outboard.Invalid || len(err.Error()) > 200 {
			t.Errorf("many %s: %v, want a short error of kind Invalid", name, err)
		}
	}
	if _, err := outboard.ParseSelector(strings.Repeat("name!~x,", 64)); err != nil {
		t.Error(err)
	}
}
