package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
)

// roleVariable holds the role of a process that this program started.
const roleVariable = "OUTBOARD_BENCH_ROLE"

// A launch runs a role in another process, and returns its output.
type launch func(ctx context.Context, role string) ([]byte, error)

// launchProcess runs this program in a new process with a role.
func launchProcess(ctx context.Context, role string) ([]byte, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), roleVariable+"="+role)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

// runRole is the main function of a process with a role.
func runRole(role string) int {
	size, err := perform(context.Background(), role)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(size)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench role:", err)
		return 1
	}
	return 0
}

func perform(ctx context.Context, role string) (float64, error) {
	var c crowd
	if err := json.Unmarshal([]byte(role), &c); err != nil {
		return 0, err
	}
	return c.gather(ctx)
}
