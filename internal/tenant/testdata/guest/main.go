// Command guest is a function for tests: the first word of a request names the action, or its mode.
package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() {
	switch os.Getenv("MODE") {
	case "size":
		guest.Handle(size)
		return
	case "stream":
		guest.HandleStream(stream)
		return
	}
	guest.Handle(handle)
}

func main() {}

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := bytes.Cut(request, []byte(" "))
	f := verbs[string(verb)]
	if f == nil {
		return nil, errors.New("no verb " + string(verb))
	}
	return f(string(rest))
}

var verbs = map[string]func(string) ([]byte, error){
	"echo": func(s string) ([]byte, error) { return []byte(s), nil },
	"json": func(s string) ([]byte, error) { return []byte(strconv.Quote(s)), nil },
	"fail": func(s string) ([]byte, error) { return nil, errors.New(s) },
	"say":  func(s string) ([]byte, error) { _, err := os.Stdout.WriteString(s + "\n"); return nil, err },
	"args": func(string) ([]byte, error) { return []byte(strings.Join(os.Args, " ")), nil },
	"env":  func(s string) ([]byte, error) { return []byte(os.Getenv(s)), nil },
	"meta": func(s string) ([]byte, error) {
		value, ok := guest.Meta(s)
		if !ok {
			return nil, errors.New("no " + s)
		}
		return []byte(value), nil
	},
	"sleep": func(s string) ([]byte, error) {
		d, err := time.ParseDuration(s)
		time.Sleep(d)
		return []byte("1"), err
	},
	"spin": func(string) ([]byte, error) {
		for {
		}
	},
	"big": func(s string) ([]byte, error) {
		n, err := strconv.Atoi(s)
		b := guest.Alloc(n)
		for i := range b {
			b[i] = byte(i)
		}
		return b, err
	},
	"add":    add,
	"call":   call,
	"secret": guest.Secret,
	"fetch":  fetch,
	"see":    see,
}

// size returns the size of b in decimal.
func size(b []byte) ([]byte, error) { return strconv.AppendInt(nil, int64(len(b)), 10), nil }

// stream answers "send N" with N bytes, "break N" with N bytes and an error, and any other request
// with its size and its digest.
func stream(s *guest.Stream) error {
	var begin [6]byte
	n, err := io.ReadFull(s, begin[:])
	verb := string(begin[:n])
	if verb != "send  " && verb != "break " {
		digest := sha256.New()
		digest.Write(begin[:n])
		if err == nil {
			var more int64
			more, err = io.Copy(digest, s)
			n += int(more)
		}
		if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
			return err
		}
		_, err = s.Write([]byte(strconv.Itoa(n) + " " + hex.EncodeToString(digest.Sum(nil))))
		return err
	}
	text, err := io.ReadAll(s)
	if err != nil {
		return err
	}
	if n, err = strconv.Atoi(string(text)); err != nil {
		return err
	}
	part := make([]byte, 10_000)
	for ; n > 0; n -= len(part) {
		part = part[:min(n, len(part))]
		if _, err := s.Write(part); err != nil {
			return err
		}
	}
	if verb == "break " {
		return errors.New("broken")
	}
	return nil
}

// add adds to a number of a bucket: "BUCKET KEY DELTA".
func add(s string) ([]byte, error) {
	words := strings.Fields(s)
	delta, err := strconv.ParseInt(words[2], 10, 64)
	if err != nil {
		return nil, err
	}
	b := guest.Bucket(words[0])
	if err := b.Txn(guest.Add(words[1], delta, 0)); err != nil {
		return nil, err
	}
	value, _, err := b.Get(words[1])
	return value, err
}

// call calls another function: "FUNCTION REQUEST".
func call(s string) ([]byte, error) {
	name, request, _ := strings.Cut(s, " ")
	return guest.Function(name).Call([]byte(request))
}

// fetch sends a request: "HOST PATH".
func fetch(s string) ([]byte, error) {
	host, path, _ := strings.Cut(s, " ")
	return guest.Outgoing(host).Call([]byte("POST http://" + host + path + " HTTP/1.1\r\nContent-Length: 5\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\nseats"))
}

// see writes a text into a named arena, "ARENA TEXT", or reads it, "ARENA".
func see(s string) ([]byte, error) {
	name, text, write := strings.Cut(s, " ")
	b, err := guest.Arena(name).Bytes()
	if err != nil {
		return nil, err
	}
	if write {
		copy(b, text+"\x00")
		return nil, nil
	}
	before, _, _ := bytes.Cut(b[:64], []byte{0})
	return before, nil
}
