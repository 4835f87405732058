package sandbox

import (
	"path/filepath"
	"slices"
	"testing"
)

// By the primary node of a graphics device a process may become its master. Few machines of tests have
// one, so the patterns are matched here.
func TestAcceleratorDevices(t *testing.T) {
	for path, want := range map[string]bool{
		"/dev/dri/renderD128": true, "/dev/nvidia0": true, "/dev/nvidiactl": true, "/dev/kfd": true,
		"/dev/dri/card0": false, "/dev/dri/by-path": false, "/dev/fb0": false, "/dev/mem": false,
	} {
		matches := func(pattern string) bool {
			ok, err := filepath.Match(pattern, path)
			return ok && err == nil
		}
		if got := slices.ContainsFunc(AcceleratorDevices, matches); got != want {
			t.Errorf("%s: got %t, want %t", path, got, want)
		}
	}
}
