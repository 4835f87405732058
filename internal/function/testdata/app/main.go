// Command app is a function for tests: the first word of a request names the operation.
package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/internal/function/testdata/work"
)

var (
	calls int
	kept  [][]byte
	seen  = map[string]int{}
)

func init() {
	for i := range 1000 {
		seen["key"+strconv.Itoa(i)] = i
	}
	guest.Handle(handle)
}

func main() {}

var verbs = map[string]func([]byte) ([]byte, error){
	"echo":  func(b []byte) ([]byte, error) { return b, nil },
	"count": func([]byte) ([]byte, error) { calls++; return number(calls), nil },
	"env": func(b []byte) ([]byte, error) {
		return []byte(os.Getenv(string(b)) + " " + strings.Join(os.Args, " ")), nil
	},
	"fail": func(b []byte) ([]byte, error) { return nil, errors.New(string(b)) },
	"say": func(b []byte) ([]byte, error) {
		_, _ = os.Stdout.WriteString("out " + string(b) + "\n")
		_, _ = os.Stderr.WriteString("err " + string(b) + "\n")
		return nil, nil
	},
	"exit":  func([]byte) ([]byte, error) { os.Exit(7); return nil, nil },
	"panic": func(b []byte) ([]byte, error) { panic(string(b)) },
	"spin": func([]byte) ([]byte, error) {
		for {
		}
	},
	"sleep": func(b []byte) ([]byte, error) {
		d, err := time.ParseDuration(string(b))
		time.Sleep(d)
		return nil, err
	},
	"recurse": func([]byte) ([]byte, error) { return number(recurse(1)), nil },
	"grow":    grow,
	"eat": func([]byte) ([]byte, error) {
		for {
			kept = append(kept, make([]byte, 1<<20))
		}
	},
	"dirty": dirty,
	"work":  func(b []byte) ([]byte, error) { return work.Handle(b, seen) },
	"rand": func([]byte) ([]byte, error) {
		return []byte(strconv.FormatUint(rand.Uint64(), 10) + " " + strconv.FormatUint(guest.Rand().Uint64(), 10)), nil
	},
	"big":   func([]byte) ([]byte, error) { return make([]byte, 8<<20), nil },
	"close": func([]byte) ([]byte, error) { return nil, errors.Join(os.Stdout.Close(), os.Stderr.Close()) },
}

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := bytes.Cut(request, []byte(" "))
	f := verbs[string(verb)]
	if f == nil {
		return nil, errors.New("no verb " + string(verb))
	}
	return f(rest)
}

func recurse(n int) int {
	if n == 0 {
		return 0
	}
	return recurse(n+1) + 1
}

func grow([]byte) ([]byte, error) {
	for range 3 {
		kept = append(kept, bytes.Repeat([]byte{0xa5}, 3<<20))
	}
	return number(len(kept)), nil
}

func dirty(b []byte) ([]byte, error) {
	for k := range seen {
		seen[k] += len(b)
	}
	seen[string(b)] = calls
	kept = append(kept, b)
	calls++
	return number(len(seen) + len(kept) + calls), nil
}

func number(n int) []byte { return strconv.AppendInt(nil, int64(n), 10) }
