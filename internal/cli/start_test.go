package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// maxInitBytes is the memory that a package of this project may allocate before main begins. All
// packages together stay below the 4 MB of heap at which the runtime collects for the first time.
const maxInitBytes = 128 << 10

// TestStart checks that what a command does not use is not made at its start: every command and
// every helper process of a node would pay for it.
func TestStart(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Args = []string{"outboard", "version"}
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	traced := regexp.MustCompile(`(?m)^init (\S+) @.* (\d+) bytes, \d+ allocs$`).FindAllStringSubmatch(stderr.String(), -1)
	if len(traced) < 10 {
		t.Fatalf("the runtime traced %d packages: has the format changed?\n%s", len(traced), stderr.String())
	}
	total := 0
	for _, m := range traced {
		size, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		total += size
		if size > maxInitBytes && strings.Contains(m[1], "outboard-run/outboard/") && !strings.HasSuffix(m[1], "_test") {
			t.Errorf("%s allocates %d bytes at the start of every command, at most %d: make them at the first use", m[1], size, maxInitBytes)
		}
	}
	t.Logf("all packages allocate %d bytes", total)
}
