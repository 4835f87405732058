package cli_test

import (
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func exitText(exit *exec.ExitError) string { return strconv.Itoa(exit.ExitCode()) }

// await repeats a command until it succeeds: what it waits for is done by a
// process in the background.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: await COMMAND ARGS...")
	}
	const limit = 2 * time.Minute
	deadline := time.Now().Add(limit)
	for {
		err := ts.Exec(args[0], args[1:]...)
		if (err == nil) != neg {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("await %v: not within %v: %v", args, limit, err)
		}
		time.Sleep(20 * time.Millisecond) // between two processes
	}
}

// keep sets a variable to what a pattern's group finds in the last standard
// output: keep NAME PATTERN.
func keep(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: keep NAME PATTERN")
	}
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(found) < 2 {
		ts.Fatalf("no %s in the last output", args[1])
	}
	ts.Setenv(args[0], found[1])
}
