package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
)

// Exit statuses that do not stand for an [outboard.Kind].
const (
	statusOther         = 1
	statusUsage         = 2
	statusKind          = 10 // of the first kind, Invalid; the other kinds follow
	statusNotExecutable = 126
	statusNotFound      = 127
	statusSignal        = 128 // plus the signal
	statusInterrupted   = 130
)

// usageError is the error of a mistake in the command line or the configuration.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func usage(format string, args ...any) error {
	return &usageError{err: fmt.Errorf(format, args...)}
}

// statusError ends the command with its status. Its cause, if it has one, is printed.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string { return fmt.Sprintf("exit status %d", e.status) }
func (e *statusError) Unwrap() error { return e.err }

// exitStatus returns the exit status for an error; no other function chooses one.
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
	if errors.Is(err, fs.ErrNotExist) {
		return kindStatus(outboard.NotFound)
	}
	return statusOther
}

func kindStatus(kind outboard.Kind) int { return statusKind + int(kind-outboard.Invalid) }

// message returns the line that is printed for err, "" for none.
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
	return clean(joinLines(err.Error()))
}

// joinLines returns a text in one line. The lines of joined errors get semicolons between.
func joinLines(text string) string {
	joined := ""
	for line := range strings.Lines(text) {
		switch line = oneLine(line); {
		case line == "":
		case joined == "":
			joined = line
		case strings.ContainsAny(joined[len(joined)-1:], ".,:;!?"):
			joined += " " + line
		default:
			joined += "; " + line
		}
	}
	return joined
}

func newExitStatusTopic() *cobra.Command {
	var text strings.Builder
	text.WriteString("Exit statuses of outboard:\n\n")
	line := func(status any, meaning string) { fmt.Fprintf(&text, "  %-4v %s\n", status, meaning) }
	line(0, "success")
	line(statusOther, "an error that has no status of its own")
	line(statusUsage, "a mistake in the command line or the configuration")
	for kind, meaning := range kindHelp() {
		if meaning != "" {
			line(kindStatus(outboard.Kind(kind)), outboard.Kind(kind).String()+": "+meaning)
		}
	}
	line(statusNotExecutable, "run: the program exists but cannot be started")
	line(statusNotFound, "run: there is no such program")
	line("128+n", "run: signal n ended the program")
	line(statusInterrupted, "interrupted")
	text.WriteString("\n`outboard run` exits with the status of its program, unless a session or lease\nwas lost and the program failed: then with the status of the loss.\n")
	return &cobra.Command{Use: "exit-status", Short: "What the exit statuses mean", Long: text.String()}
}

// kindHelp describes every kind that has an exit status, by its number.
func kindHelp() []string {
	return []string{
		outboard.Other:       "",
		outboard.Invalid:     "a request that can never succeed as it stands",
		outboard.NotFound:    "a name that does not exist",
		outboard.NoDevice:    "no device of the pool meets the selector",
		outboard.Busy:        "all devices that match are leased",
		outboard.Denied:      "a missing, wrong or expired credential",
		outboard.LeaseLost:   "a lease expired or was revoked",
		outboard.Unreachable: "a node or network that does not answer",
		outboard.SessionLost: "a session ended before its program did",
		outboard.Protocol:    "a peer that breaks the wire format",
		outboard.NoPool:      "no node runs here",
		outboard.Exhausted:   "a limit was reached: memory, sessions, sizes",
		outboard.Conflict:    "a change conflicts with another one",
	}
}
