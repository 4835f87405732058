package launch

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// terminalVariable says whether the rank that this program runs has a session of its "own", or
// "shares" this program's.
const terminalVariable = "LAUNCH_TEST_TERMINAL"

// rankAtTerminal prints whether the rank could open the terminal of its session, and whose session
// that is: the fourth field behind the name in /proc/PID/stat is the session's leader (proc(5)).
const rankAtTerminal = `
if (: </dev/tty) 2>/dev/null; then printf 'opened, '; else printf 'refused, '; fi
read -r stat </proc/$$/stat
set -- ${stat##*) }
if [ "$4" = $$ ]; then echo own; else echo shared; fi`

// runAtTerminal runs a rank that opens the terminal of its session, and prints what came of it.
func runAtTerminal(ownSession bool) int {
	err := Run(context.Background(), Job{
		Path: "/bin/sh", Args: []string{"sh", "-c", rankAtTerminal}, Ranks: 1,
		OwnSession: ownSession, Environ: func(int) []string { return os.Environ() },
		Emit: func(l Line) { fmt.Fprintln(os.Stderr, string(l.Text)) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// openTerminal opens a pseudo-terminal and returns the side of its programs, nil on a machine without
// pseudo-terminals.
func openTerminal(t *testing.T) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Logf("only sessions are compared: %v", err)
		return nil
	}
	t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return terminal
}

// A rank on another node can't open the terminal at which that node was started, into which it could
// type commands: its session is its own. A rank of `outboard train` without --device, which is the
// user's own, can.
func TestNoTerminal(t *testing.T) {
	for session, want := range map[string]string{"own": "refused, own", "shares": "opened, shared"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), terminalVariable+"="+session)
		var out bytes.Buffer
		cmd.Stderr, cmd.SysProcAttr = &out, &syscall.SysProcAttr{Setsid: true}
		if terminal := openTerminal(t); terminal != nil {
			cmd.Stdin, cmd.SysProcAttr.Setctty = terminal, true
		} else {
			want = strings.Replace(want, "opened", "refused", 1)
		}
		if err := cmd.Run(); err != nil || strings.TrimSpace(out.String()) != want {
			t.Errorf("%s: got %q, %v, want %s", session, out.String(), err, want)
		}
	}
}
