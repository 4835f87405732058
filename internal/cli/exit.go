package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
)

// The statuses that are not made from an [outboard.Kind].
const (
	statusOther         = 1
	statusUsage         = 2
	statusKind          = 10 // of the first kind, Invalid; the others follow
	statusNotExecutable = 126
	statusNotFound      = 127
	statusSignal        = 128 // plus the signal
	statusInterrupted   = 130
)

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// statusError ends the command with a status of its own. Its cause, if any, is
// printed.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }
func (e *statusError) Unwrap() error { return e.err }

// exitStatus is the only place where an error becomes an exit status.
func exitStatus(ctx context.Context, err error) int {
	if err == nil {
		return 0
	}
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	if _, ok := errors.AsType[*usageError](err); ok {
		return statusUsage
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return statusInterrupted
	}
	if kind := outboard.KindOf(err); kind != outboard.Other {
		return kindStatus(kind)
	}
	return statusOther
}

func kindStatus(kind outboard.Kind) int { return statusKind + int(kind-outboard.Invalid) }

// message is what to print of err: one line, or nothing.
func message(err error) string {
	if e, ok := errors.AsType[*statusError](err); ok {
		err = e.err
	}
	if err == nil {
		return ""
	}
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

func newExitStatusTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit statuses of outboard:\n\n")
	line := func(status any, what string) { fmt.Fprintf(&text, "  %-4v %s\n", status, what) }
	line(0, "it worked")
	line(statusOther, "an error that has no status of its own")
	line(statusUsage, "a command line or configuration that cannot be understood")
	for kind, what := range kindHelp() {
		if what != "" {
			line(kindStatus(outboard.Kind(kind)), outboard.Kind(kind).String()+": "+what)
		}
	}
	line(statusNotExecutable, "run: the program is there but cannot be started")
	line(statusNotFound, "run: there is no such program")
	line("128+n", "run: signal n ended the program")
	line(statusInterrupted, "interrupted")
	text.WriteString("\n`outboard run` exits with the status of its program, unless a session or lease\nwas lost under it and the program failed: then with that of the loss.\n")
	return &cobra.Command{Use: "exit-status", Short: "What the exit statuses mean", Long: text.String()}
}

// kindHelp explains every kind that has an exit status, by its number.
func kindHelp() []string {
	return []string{
		outboard.Other:       "",
		outboard.Invalid:     "a request that can never succeed as it stands",
		outboard.NotFound:    "a name that means nothing here",
		outboard.NoDevice:    "no device of the pool meets the selector",
		outboard.Busy:        "all devices that fit are leased",
		outboard.Denied:      "a missing, wrong or expired credential",
		outboard.LeaseLost:   "a lease expired or was taken back",
		outboard.Unreachable: "a node or network that does not answer",
		outboard.SessionLost: "a session ended before its program did",
		outboard.Protocol:    "a peer that breaks the wire format",
		outboard.NoPool:      "no node runs here",
		outboard.Exhausted:   "a limit was reached: memory, sessions, sizes",
		outboard.Conflict:    "a change lost against another one",
	}
}
