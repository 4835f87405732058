//go:build race

package state

import (
	"testing"

	"github.com/outboard-run/outboard/internal/pool/racetest"
)

func TestMain(m *testing.M) { racetest.Main(m, "../racetest/suppressions") }
