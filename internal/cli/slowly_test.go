package cli

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// Only who sits at a terminal, and waits, is told for what.
func TestSlowly(t *testing.T) {
	for name, test := range map[string]struct {
		terminal bool
		took     time.Duration
		want     string
	}{
		"quick":       {true, slow - 1, ""},
		"slow":        {true, slow + 1, "pulling 5 modules ...\n"},
		"no terminal": {false, slow + 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				stop := (&Env{Stderr: &out, Terminal: test.terminal}).slowly("pulling %d modules", 5)
				time.Sleep(test.took)
				stop()
				time.Sleep(time.Minute)
				if got := out.String(); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
			})
		})
	}
}
