// Package fake is a worker without a driver: it sends back what it gets. Tests
// of everything around a worker start it as a process of their own.
package fake

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Orders that the worker obeys instead of sending them back. Each must be what
// one Next of the ring returns.
const (
	// Crash makes it end with a bad status and a line on standard error.
	Crash = "!crash"
	// Fail makes it end with a reason on its control socket.
	Fail = "!fail"
	// Hang makes it ignore everything until it is killed.
	Hang = "!hang"
	// Child makes it start a process that would outlive it, and answer with
	// its number.
	Child = "!child"
	// Dial, with the path of a unix socket behind it, makes it connect there, ask
	// for the status of a node, and answer with the first line that comes back.
	Dial = "!dial "
	// Environ makes it answer with its environment, each variable ended by NUL.
	Environ = "!environ"
	// Config makes it answer with the session, owner and device that it was given.
	Config = "!config"
)

// Devices is what the fake's probe finds.
func Devices(context.Context) ([]outboard.Device, error) {
	return []outboard.Device{
		{API: outboard.OpenCL, Type: outboard.CPU, Name: "Fake CPU", Vendor: "Fake", Platform: "Fake", Memory: 1 << 30, Units: 2},
		{API: outboard.OpenCL, Type: outboard.GPU, Name: "Fake GPU", Vendor: "Fake", Platform: "Fake", Memory: 4 << 30, Units: 16},
	}, nil
}

// Helper is a node's helper process: `probe API` or `worker`. It returns its exit
// status.
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
	fmt.Fprintf(os.Stderr, "fake helper: no such thing: %q\n", args)
	return 2
}

// Worker serves the ring on descriptor 3 and the control socket on descriptor 4,
// as a real one does, and returns its exit status.
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
	ring, err := shm.Open(os.NewFile(3, "ring"), shm.Worker)
	if err != nil {
		return err
	}
	if err := conn.Send(control.Message{Type: control.TypeReady}); err != nil {
		return err
	}
	go func() {
		// The node's end of file means: end at once.
		for err == nil {
			_, err = conn.Receive()
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

func execute(conn *control.Conn, config *control.Config, order string) (string, error) {
	if path, ok := strings.CutPrefix(order, Dial); ok {
		return dial(path), nil
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
		return fmt.Sprint(child.Process.Pid), nil
	case Environ:
		return strings.Join(os.Environ(), "\x00"), nil
	case Config:
		return fmt.Sprintf("%s %s %d %s", config.Session, config.Owner, config.Device, config.Memory), nil
	}
	return order, nil
}

// dial connects to a socket and returns the first line that its owner answers.
func dial(path string) string {
	conn, err := unixsock.Dial(context.Background(), path)
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
