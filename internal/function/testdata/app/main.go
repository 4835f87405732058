// Command app is a function for tests: the first word of a request says what to do.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"sort"
	"strings"
	"time"

	guest "github.com/outboard-run/outboard/guest/go"
)

var (
	calls int
	kept  [][]byte
	seen  = map[string]int{}
)

func init() {
	for i := range 1000 {
		seen[fmt.Sprint("key", i)] = i
	}
	guest.Handle(handle)
}

func main() {}

var verbs = map[string]func([]byte) ([]byte, error){
	"echo":  func(b []byte) ([]byte, error) { return b, nil },
	"count": func([]byte) ([]byte, error) { calls++; return fmt.Append(nil, calls), nil },
	"env":   func(b []byte) ([]byte, error) { return fmt.Append(nil, os.Getenv(string(b)), os.Args), nil },
	"fail":  func(b []byte) ([]byte, error) { return nil, errors.New(string(b)) },
	"say": func(b []byte) ([]byte, error) {
		fmt.Fprintf(os.Stdout, "out %s\n", b)
		fmt.Fprintf(os.Stderr, "err %s\n", b)
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
	"recurse": func([]byte) ([]byte, error) { return fmt.Append(nil, recurse(1)), nil },
	"grow":    grow,
	"eat": func([]byte) ([]byte, error) {
		for {
			kept = append(kept, make([]byte, 1<<20))
		}
	},
	"dirty": dirty,
	"rand":  func([]byte) ([]byte, error) { return fmt.Append(nil, rand.Uint64(), " ", guest.Rand().Uint64()), nil },
	"big":   func([]byte) ([]byte, error) { return make([]byte, 8<<20), nil },
	"close": func([]byte) ([]byte, error) { return nil, errors.Join(os.Stdout.Close(), os.Stderr.Close()) },
	"work":  work,
}

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := bytes.Cut(request, []byte(" "))
	f := verbs[string(verb)]
	if f == nil {
		return nil, fmt.Errorf("no verb %q", verb)
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
	return fmt.Append(nil, len(kept)), nil
}

func dirty(b []byte) ([]byte, error) {
	for k := range seen {
		seen[k] += len(b)
	}
	seen[string(b)] = calls
	kept = append(kept, b)
	calls++
	return fmt.Append(nil, len(seen), len(kept), calls), nil
}

type item struct {
	Name  string   `json:"name"`
	Count int      `json:"count"`
	Tags  []string `json:"tags"`
}

// work is what a handler does: read JSON, look things up, sort, write JSON.
func work(b []byte) ([]byte, error) {
	var items []item
	if err := json.Unmarshal(b, &items); err != nil {
		return nil, err
	}
	for i := range items {
		items[i].Count += seen[items[i].Name]
		items[i].Tags = append(items[i].Tags, strings.ToUpper(items[i].Name), fmt.Sprint(crc32.ChecksumIEEE([]byte(items[i].Name))))
	}
	sort.Slice(items, func(i, j int) bool { return items[i].Count > items[j].Count })
	return json.Marshal(items)
}
