package lend

import (
	"strings"
	"testing"
)

func TestExitReason(t *testing.T) {
	stacks := strings.Repeat("goroutine 7 [syscall]:\nruntime.cgocall(0x84ece0)\n", 200) + "gs     0x0\n"
	tests := map[string]struct {
		stderr, want string
	}{
		"last line":            {"ptxas warning\nkernel went wrong\n", "kernel went wrong"},
		"no line":              {"\n \n", ""},
		"panic":                {"panic: no such object\n\n" + stacks, "panic: no such object"},
		"error of the runtime": {"fatal error: out of memory\n" + stacks, "fatal error: out of memory"},
		"signal in a driver":   {"1 warning generated.\nSIGSEGV: segmentation violation\n" + stacks, "SIGSEGV: segmentation violation"},
		"recovered before":     {"panic: handled\nSIGFPE: floating-point exception\n" + stacks, "SIGFPE: floating-point exception"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var p process
			for _, chunk := range []string{tt.stderr[:len(tt.stderr)/3], tt.stderr[len(tt.stderr)/3:]} {
				p.addStderr([]byte(chunk), false)
			}
			p.addStderr(nil, true)
			if got := p.exitMessage(); got != tt.want {
				t.Errorf("the process ended with %q, want %q", got, tt.want)
			}
		})
	}
}
