package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// confineVariable names the folder in which this program confines itself and becomes its arguments.
const confineVariable = "LAUNCH_TEST_CONFINE"

func TestMain(m *testing.M) {
	if dir := os.Getenv(confineVariable); dir != "" {
		err := Confine(Confinement{Dir: dir, Files: dir}, os.Args[1:])
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if session := os.Getenv(terminalVariable); session != "" {
		os.Exit(runAtTerminal(session == "own"))
	}
	os.Exit(m.Run())
}

// A confined rank writes to its own folder only, and reads no other than the system's. Where the
// kernel has no Landlock, a node that is not root starts no confined ranks.
func TestConfinedRankSeesOnlyItsOwnFolder(t *testing.T) {
	own, node := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(node, "key"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	// Opening for appending changes nothing, should it succeed.
	script := `try() { if "$@" 2>/dev/null; then echo allowed; else echo refused; fi; }
		append() { (: >>"$1"); }
		list() { ls "$1" >/dev/null; }
		try append "$0/result"; try cat /etc/passwd >/dev/null && echo read
		try append /etc/passwd; try append "$1/key"; try append "$1/new"; try cat "$1/key"; try list "$1"`
	cmd := exec.Command(os.Args[0], "/bin/sh", "-c", script, own, node)
	cmd.Env = append(HelperEnviron(os.Environ()), confineVariable+"="+own)
	out, err := cmd.CombinedOutput()
	if err != nil && strings.Contains(string(out), "not supported") {
		if !strings.Contains(string(out), "can't confine") {
			t.Errorf("without Landlock: got %q, want a refusal", out)
		}
		return
	}
	if want := "allowed read refused refused refused refused refused"; err != nil || strings.Join(strings.Fields(string(out)), " ") != want {
		t.Errorf("got %q, %v, want %s", out, err, want)
	}
}

// A rank gets its variables, and not those of the helper process.
func TestRankHasItsOwnEnvironment(t *testing.T) {
	own := t.TempDir()
	cmd := exec.Command(os.Args[0], "env")
	cmd.Env = append(HelperEnviron([]string{"PATH=" + os.Getenv("PATH"), "LD_PRELOAD=", "A=b=c"}), confineVariable+"="+own)
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this machine does not confine: %v", err)
	}
	if want := "PATH=" + os.Getenv("PATH") + "\nLD_PRELOAD=\nA=b=c\n"; string(out) != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestConfinementTravelsInArguments(t *testing.T) {
	c := Confinement{Dir: "/d", Files: "/d/files", Readable: []string{"/r"}, OwnUser: true}
	want := "--dir /d --files /d/files --readable /r --own-user -- python3 --dir x"
	if got := strings.Join(c.Args([]string{"python3", "--dir", "x"}), " "); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
