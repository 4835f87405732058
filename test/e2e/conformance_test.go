//go:build conformance

package e2e

import (
	"maps"
	"slices"
	"testing"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

// sharedCaches has the shared pools keep compiled kernels, as nodes do.
const sharedCaches = true

// recordedWhenBorrowed are the programs of package cltest that TestRecordedPrograms runs on a borrowed
// device.
var recordedWhenBorrowed = []string{"event", "map", "memory", "kernel"}

// Every test program that CLBlast has does locally and borrowed the same.
func TestConformanceCLBlast(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "clblast_test_xaxpy")
	for _, name := range suite.CLBlastTests() {
		t.Run(name, func(t *testing.T) { same(t, suite.CLBlast(name)) })
	}
}

func TestConformanceFFmpeg(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "ffmpeg")
	all := graphs(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) { same(t, filter(name, all[name], 100)) })
	}
}

// All that clpeak measures, with every width of vectors.
func TestConformanceCLPeak(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "clpeak")
	same(t, suite.CLPeak())
}

// Cold and warm caches of compiled kernels take different ways: source and binary.
func TestConformanceHashcat(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "hashcat")
	p := suite.Hashcat()
	for name, way := range paths(shared(t)) {
		home := t.TempDir()
		for _, cache := range []string{"cold", "warm"} {
			if _, err := p.Essence(p.Run(t.Context(), way, home)); err != nil {
				t.Errorf("over %s with a %s cache: %v", name, cache, err)
			}
		}
	}
}
