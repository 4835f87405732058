package shared_test

import (
	"context"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// TestMain lets the test binary be the other process.
func TestMain(m *testing.M) {
	switch what := os.Getenv("SHARED_TEST_PEER"); what {
	case "":
	case "floor":
		os.Exit(bounce())
	case "caller":
		os.Exit(callUntilKilled(os.Getenv("SHARED_TEST_PATH")))
	default:
		os.Exit(peer(what, os.Getenv("SHARED_TEST_PATH")))
	}
	os.Exit(m.Run())
}

// peer listens, says so on its output, and serves until its input ends.
func peer(what, path string) int {
	o := shared.Options{Handler: echo{}, Inline: what == "inline", Heap: 1 << 20}
	if what == "bench" || what == "bench inline" {
		o = shared.Options{Handler: echo{}, Inline: what == "bench inline"}
	}
	l, err := shared.Listen(path, o)
	if err != nil {
		return 1
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.Serve(ctx, welcome) }()
	_, _ = os.Stdout.WriteString("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	cancel()
	if err := <-ended; err != nil {
		return 1
	}
	return 0
}

// startPeer runs peer in a process, and returns its socket's path.
func startPeer(t testing.TB, what string) (string, *exec.Cmd) {
	t.Helper()
	path := t.TempDir() + "/s"
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHARED_TEST_PEER="+what, "SHARED_TEST_PATH="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := io.ReadFull(out, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	return path, cmd
}
