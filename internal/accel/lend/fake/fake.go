// Package fake is a worker without a driver: it echoes its input. Tests of everything around a
// worker start it as a process of their own.
package fake

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Orders that the worker obeys instead of echoing them. One Next of the ring must return a whole
// order.
const (
	// Crash makes the worker end with a bad status and a line on standard error.
	Crash = "!crash"
	// Fail makes the worker end with a reason on its control socket.
	Fail = "!fail"
	// Hang makes the worker ignore everything until it is killed.
	Hang = "!hang"
	// Child makes the worker start a process that would outlive it, and answer with that process's
	// id.
	Child = "!child"
	// Dial, followed by the path of a unix socket, makes the worker connect to it, request the
	// status of a node, and answer with the first line of the response.
	Dial = "!dial "
	// Environ makes the worker answer with its environment, each variable ended by NUL.
	Environ = "!environ"
	// Eat makes the worker allocate memory until it is killed.
	Eat = "!eat"
	// Say, followed by a text, makes the worker write the text to standard error, as a driver may.
	Say = "!say "
	// Told makes the worker answer with the next line that the node has returned to it for its
	// client.
	Told = "!told"
	// Compiled is the file that a compile step writes into the cache.
	Compiled = "compiled"
	// Config makes the worker answer with the session, owner and device of its configuration.
	Config = "!config"
)

// Devices returns the devices of the fake's probe.
func Devices(context.Context) ([]outboard.Device, error) {
	return []outboard.Device{
		{API: outboard.OpenCL, Type: outboard.CPU, Name: "Fake CPU", Vendor: "Fake", Platform: "Fake", Memory: 1 << 30, Units: 2},
		{API: outboard.OpenCL, Type: outboard.GPU, Name: "Fake GPU", Vendor: "Fake", Platform: "Fake", Memory: 4 << 30, Units: 16},
	}, nil
}

// Helper is the main function of a node's helper process: `probe API` or `worker`. It returns its
// exit status.
func Helper(args []string) int {
	switch {
	case len(args) == 2 && args[0] == "probe":
		devices, err := Devices(context.Background())
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(devices)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "fake probe:", err)
			return 1
		}
		return 0
	case len(args) == 1 && args[0] == "worker":
		return Worker()
	}
	fmt.Fprintf(os.Stderr, "fake helper: unknown arguments: %q\n", args)
	return 2
}

// Worker serves the ring on descriptor 3 and the control socket on descriptor 4, as a real worker
// does, and returns its exit status.
func Worker() int {
	if err := work(); err != nil {
		fmt.Fprintln(os.Stderr, "fake worker:", err)
		return 1
	}
	return 0
}

func work() error {
	conn, err := control.FromFile(os.NewFile(4, "control"))
	if err != nil {
		return err
	}
	first, err := conn.Receive()
	if err != nil || first.Config == nil {
		return fmt.Errorf("no configuration: %w", err)
	}
	if first.Config.Inspect {
		// A fake enters no sandbox; it reports the namespaces in which it was started.
		have := first.Config.Sandbox.Namespaces
		if first.Config.Cgroup {
			have = append(have, sandbox.Cgroup)
		}
		err := conn.Send(control.Message{Type: control.TypeIsolation, Isolation: &control.Isolation{Mechanisms: have}})
		conn.Final(err)
		return err
	}
	if first.Config.Compile {
		return compile(conn, first.Config)
	}
	ring, err := shm.Open(os.NewFile(3, "ring"), shm.Worker)
	if err != nil {
		return err
	}
	if err := conn.Send(control.Message{Type: control.TypeReady}); err != nil {
		return err
	}
	printed := make(chan string, 100)
	go func() {
		// End of file from the node means: exit at once.
		for err == nil {
			var m control.Message
			if m, err = conn.Receive(); m.Type == control.TypeStderr {
				printed <- m.Text
			}
		}
		os.Exit(0) //nolint:forbidigo // the ring may never return
	}()
	for {
		got, err := ring.Next(1)
		if errors.Is(err, io.EOF) {
			conn.Final(nil)
			return nil
		}
		if err != nil {
			return err
		}
		if string(got) == Told {
			ring.Release(len(got))
			if err := send(ring, <-printed); err != nil {
				return err
			}
			continue
		}
		answer, err := execute(conn, first.Config, string(got))
		if err != nil {
			return err
		}
		ring.Release(len(got))
		if err := send(ring, answer); err != nil {
			return err
		}
	}
}

// compile executes a compile step. The recipes on descriptor 3 are one of the orders, or a text
// that is written into the cache.
func compile(conn *control.Conn, config *control.Config) error {
	recipes, err := io.ReadAll(os.NewFile(3, "recipes"))
	if err == nil {
		err = os.WriteFile(filepath.Join(config.CacheDir, Compiled), recipes, 0o600)
	}
	if err == nil {
		_, err = execute(conn, config, string(recipes))
	}
	conn.Final(err)
	return err
}

func execute(conn *control.Conn, config *control.Config, order string) (string, error) {
	if path, ok := strings.CutPrefix(order, Dial); ok {
		return dial(path), nil
	}
	if text, ok := strings.CutPrefix(order, Say); ok {
		_, err := fmt.Fprintln(os.Stderr, text)
		return "said", err
	}
	switch order {
	case Crash:
		return "", errors.New("the kernel went wrong")
	case Fail:
		conn.Final(outboard.Errorf(outboard.Exhausted, "", "out of fake memory"))
		os.Exit(0) //nolint:forbidigo // as a worker that gives up
	case Hang:
		signal.Ignore(syscall.SIGTERM)
		select {}
	case Child:
		child := exec.Command("sleep", "1000") //nolint:noctx // it must outlive everything
		if err := child.Start(); err != nil {
			return "", err
		}
		return hostPID(child.Process.Pid), nil
	case Eat:
		for all := [][]byte{}; ; {
			all = append(all, bytes.Repeat([]byte{1}, 1<<20))
		}
	case Environ:
		return strings.Join(os.Environ(), "\x00"), nil
	case Config:
		return fmt.Sprintf("%s %s %d %s", config.Session, config.Owner, config.Device, config.Memory), nil
	}
	return order, nil
}

// hostPID returns the id of a child outside of the worker's namespaces, whose /proc it sees.
func hostPID(pid int) string {
	statuses, _ := filepath.Glob("/proc/[0-9]*/status") // the pattern is valid
	for _, path := range statuses {
		text, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(text), "\nName:\tsleep\n") && !strings.HasPrefix(string(text), "Name:\tsleep\n") {
			continue
		}
		_, numbers, _ := strings.Cut(string(text), "\nNSpid:")
		line, _, _ := strings.Cut(numbers, "\n")
		fields := strings.Fields(line)
		if len(fields) > 0 && fields[len(fields)-1] == strconv.Itoa(pid) && sameNamespace(filepath.Dir(path)) {
			return fields[0]
		}
	}
	return strconv.Itoa(pid)
}

// sameNamespace reports whether a process is in this process's PID namespace.
func sameNamespace(proc string) bool {
	ours, err := os.Readlink("/proc/self/ns/pid")
	theirs, err2 := os.Readlink(proc + "/ns/pid")
	return err == nil && err2 == nil && ours == theirs
}

// dial connects to a socket and returns the first line that its owner answers.
func dial(path string) string {
	conn, err := unixsock.Dial(context.Background(), path)
	if errors.Is(err, syscall.EPROTOTYPE) {
		conn, err = unixsock.DialPacket(context.Background(), path)
	}
	if err != nil {
		return err.Error()
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHost: node\r\n\r\n")
	line, err := bufio.NewReader(conn).ReadString('\n')
	if line == "" {
		return err.Error()
	}
	return strings.TrimSpace(line)
}

func send(ring *shm.Ring, text string) error {
	for len(text) > 0 {
		room, err := ring.Reserve(1)
		if err != nil {
			return err
		}
		n := copy(room, text)
		ring.Commit(n)
		text = text[n:]
	}
	return nil
}
