package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
)

func newDownCommand(env *Env) *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the node that runs here",
		Long: `Stop the node that runs here. Requests that it has accepted end first, for 30 s at most. Its
sessions end and its leases are released; it stays a member of the pool, and ` + "`outboard up`" + `
starts it again.`,
		Example: "  outboard down\n  outboard down --data /var/lib/outboard",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDown(cmd.Context(), env) },
	}
}

func runDown(ctx context.Context, env *Env) error {
	status, err := env.client().Status(ctx)
	if err != nil {
		return err
	}
	if err := env.client().Stop(ctx); err != nil {
		return err
	}
	if err := awaitExit(ctx, status.PID); err != nil {
		return err
	}
	printSafe(env.Stderr, "node %s stopped\n", status.Node)
	return nil
}

// awaitExit waits until the process has ended. It polls for the process's absence, since the
// process is not a child of this one.
func awaitExit(ctx context.Context, pid int) error {
	const limit = time.Minute // accepted calls end first
	deadline, poll := time.After(limit), time.NewTicker(20*time.Millisecond)
	defer poll.Stop()
	for {
		if hasEnded(pid) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return outboard.Errorf(outboard.Unreachable, "stop the node", "process %d still runs after %v; see its log, or kill it with `kill -9 %d`", pid, limit, pid)
		case <-poll.C:
		}
	}
}

// hasEnded reports whether a process has ended. In a container whose first process does not wait for
// orphans it remains as a zombie (proc_pid_stat(5)).
func hasEnded(pid int) bool {
	if err := syscall.Kill(pid, 0); errors.Is(err, syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}
