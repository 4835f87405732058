package rig

import (
	"testing"
	"time"
)

// Stolen time is apart from the time that processes use.
func TestParseStat(t *testing.T) {
	used, stolen, err := parseStat("cpu  100 20 30 9000 800 4 5 60 7 8\ncpu0 1\n")
	if want := 159 * clockTick; err != nil || used != want || stolen != 60*clockTick {
		t.Errorf("got %v and %v, %v, want %v and %v", used, stolen, err, want, 60*clockTick)
	}
	for _, text := range []string{"", "cpu 1 2 3\n", "intr 1 2 3 4 5 6 7 8 9\n", "cpu 1 2 3 4 5 6 7 x\n"} {
		if _, _, err := parseStat(text); err == nil {
			t.Errorf("no error for %q", text)
		}
	}
}

// The counters of this machine go on.
func TestMachineProcessor(t *testing.T) {
	before, stolen, err := MachineProcessor()
	if err != nil {
		t.Fatal(err)
	}
	for limit := time.Now().Add(time.Minute); ; {
		used, after, err := MachineProcessor()
		if err != nil || used < before || after < stolen {
			t.Fatalf("%v and %v after %v and %v, %v", used, after, before, stolen, err)
		}
		if used > before {
			return
		}
		if time.Now().After(limit) {
			t.Fatal("the processor time of all processes does not grow")
		}
	}
}
