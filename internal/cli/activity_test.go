package cli

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// A command reports its activity only on a terminal, and only when it is slow.
func TestReportIfSlow(t *testing.T) {
	for name, test := range map[string]struct {
		terminal bool
		took     time.Duration
		want     string
	}{
		"quick":       {true, silenceLimit - 1, ""},
		"slow":        {true, silenceLimit + 1, "pulling 5 modules ...\n"},
		"no terminal": {false, silenceLimit + 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out bytes.Buffer
				stop := (&Env{Stderr: &out, Terminal: test.terminal}).reportIfSlow("pulling %d modules", 5)
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
