package tiers

import "testing"

func TestParseLimits(t *testing.T) {
	for text, want := range map[string]string{
		"device=1MiB,host=2KiB,disk=3": "device=1048576,host=2048,disk=3",
		"disk=1GB, device=0":           "device=0,host=0,disk=1000000000",
		"":                             "",
	} {
		if l, err := ParseLimits(text); err != nil || l.String() != want {
			t.Errorf("%q: %q, %v, want %q", text, l, err, want)
		}
	}
	for _, text := range []string{"device", "device=1", "host=1", "device=1,host=1,host=2", "device=-1,disk=1", "gpu=1,disk=2", "device=1,disk=1000TiB", ","} {
		if l, err := ParseLimits(text); err == nil {
			t.Errorf("%q: %v", text, l)
		}
	}
}
