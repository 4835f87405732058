package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/internal/accel/borrow"
)

// Program is the main function of a program that uses a fake device: it prints the answer to each
// argument, one per line, and returns its exit status. Some arguments have other meanings:
//
//	lease=N   continue with a session of lease N
//	leases    print the number of leases
//	wait      wait until the session ends
func Program(args []string) int {
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "program:", err)
		return 3
	}
	return 0
}

func run(args []string) (err error) {
	var session *borrow.Session
	defer func() {
		if session != nil {
			err = errors.Join(err, session.Close())
		}
	}()
	lease := 0
	for _, arg := range args {
		if number, ok := strings.CutPrefix(arg, "lease="); ok {
			if lease, err = strconv.Atoi(number); err != nil {
				return err
			}
			if session != nil {
				_ = session.Close()
				session = nil
			}
			continue
		}
		if session == nil {
			if session, err = borrow.Connect(context.Background(), os.Getenv("OUTBOARD_SOCKET"), lease); err != nil {
				return err
			}
		}
		if err := step(session, arg); err != nil {
			return err
		}
	}
	return nil
}

func step(session *borrow.Session, arg string) error {
	switch arg {
	case "leases":
		fmt.Fprintln(os.Stdout, session.Leases)
		return nil
	case "wait":
		fmt.Fprintln(os.Stdout, "waiting")
		_, err := session.Ring.Next(1)
		return err
	}
	answer, err := Exchange(session, arg)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, answer)
	return nil
}

// Exchange sends an order and returns the answer. The answer to a text that is no order must be as
// long as the text.
func Exchange(session *borrow.Session, order string) (string, error) {
	if err := send(session.Ring, order); err != nil {
		return "", err
	}
	want := 1
	if !strings.HasPrefix(order, "!") {
		want = len(order)
	}
	got, err := session.Ring.Next(want)
	if errors.Is(err, io.EOF) {
		return "", io.ErrUnexpectedEOF
	}
	answer := string(got)
	session.Ring.Release(len(got))
	return answer, err
}
