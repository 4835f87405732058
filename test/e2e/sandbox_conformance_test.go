//go:build conformance

package e2e

import (
	"testing"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// Long programs in the strongest sandbox, as root and as an ordinary user.
func TestConformanceStrongestSandbox(t *testing.T) {
	for _, name := range []string{"clblast_test_xaxpy", "clpeak", "hashcat", "ffmpeg"} {
		need.Program(t, name)
	}
	sameIsolated(t, suite.FFmpeg("unsharp_opencl", 100), suite.CLBlast("xgemm"), suite.CLPeak(), suite.Hashcat())
}
