package launch

import (
	"maps"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

func TestCheckRoom(t *testing.T) {
	for text, fits := range map[string]bool{"": true, "device=1,host=9TiB": true, "device=1,disk=1KiB": true, "device=1,disk=15TiB": false} {
		err := Resources{Offload: text}.CheckRoom(t.TempDir(), 256)
		if fits && err != nil || !fits && (outboard.KindOf(err) != outboard.Exhausted || !strings.Contains(err.Error(), "make room")) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestResources(t *testing.T) {
	r, err := Resources{Threads: "auto", Offload: "device=1KiB,disk=2KiB"}.Check()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"OMP_NUM_THREADS": "4", "OUTBOARD_THREADS": "8", "OUTBOARD_OFFLOAD": "device=1024,host=0,disk=2048"}
	if got := r.Environ(8, 2); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, r := range []Resources{{Threads: "0"}, {Offload: "disk=1"}} {
		if _, err := r.Check(); err == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}

func TestStageLimits(t *testing.T) {
	for text, want := range map[string]map[string]string{
		"":               {},
		"90s":            {"OUTBOARD_STAGE_LIMIT": "90"},
		"1.5m,elsewhere": {"OUTBOARD_STAGE_LIMIT": "90", "OUTBOARD_STAGE_ELSEWHERE": "1"},
	} {
		r, err := Resources{Threads: "1", StageLimit: text}.Check()
		if err != nil {
			t.Fatal(err)
		}
		got := r.Environ(8, 2)
		delete(got, "OMP_NUM_THREADS")
		if !maps.Equal(got, want) {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	for _, text := range []string{"0s", "-1m", "15", "elsewhere", ",elsewhere", "15m,", "15m,here", "15m,elsewhere,elsewhere"} {
		if _, err := (Resources{StageLimit: text}).Check(); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%q: got %v, want that it is invalid", text, err)
		}
	}
}
