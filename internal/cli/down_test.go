package cli

import (
	"os/exec"
	"testing"
)

// A node that is a zombie has stopped: nobody may ever wait for it.
func TestZombiesHaveEnded(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if hasEnded(cmd.Process.Pid) {
		t.Error("a process that runs has ended")
	}
	_ = in.Close()
	if err := awaitExit(t.Context(), cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
