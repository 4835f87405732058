package helper

import (
	"log/slog"
	"strings"
	"testing"
)

// Why a process ended is the first line of a crash, else the last lines that it wrote.
func TestExitReport(t *testing.T) {
	tests := map[string]struct{ wrote, want string }{
		"nothing": {"", ""},
		"records": {
			`{"level":"INFO","msg":"one"}` + "\n" + `{"level":"WARN","msg":"two"}` + "\n" + `{"level":"INFO","msg":"more"}` + "\n" + `{"level":"ERROR","msg":"three","error":"no room","n":1}` + "\nfour\n",
			"its log ends with: two | three: no room | four",
		},
		"a crash":     {"panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x/main.go:7 +0x1d\nexit status 2\n", "panic: boom"},
		"a signal":    {"SIGSEGV: segmentation violation\nPC=0x7fe26f3dcd6c m=6 sigcode=128 addr=0x0\nfs     0x0\ngs     0x0\n", "SIGSEGV: segmentation violation"},
		"a long line": {strings.Repeat("x", 1000), "its log ends with: " + strings.Repeat("x", maxReportLine) + "..."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &process{log: slog.New(slog.DiscardHandler)}
			for line := range strings.Lines(test.wrote) {
				if line = strings.TrimSpace(line); line != "" {
					p.relayLine([]byte(line))
				}
			}
			if got := p.report.String(); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
