// Command files is a function for tests that uses files: the first word of a request names the
// operation, the second one is its argument.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
)

func init() { guest.Handle(handle) }

func main() {}

func handle(request []byte) ([]byte, error) {
	verb, argument, _ := strings.Cut(string(request), " ")
	switch verb {
	case "use":
		return nil, use()
	case "multipart":
		return parseMultipart(argument)
	case "keep":
		return leaveOpen()
	case "fill":
		return nil, fill(argument)
	case "create":
		return nil, os.WriteFile(argument, nil, 0o600)
	case "read":
		return os.ReadFile(argument)
	}
	return nil, errors.New("no verb " + verb)
}

// use does what programs do with temporary files.
func use() error {
	dir, err := os.MkdirTemp("", "use")
	if err != nil {
		return err
	}
	name := filepath.Join(dir, "a")
	data := bytes.Repeat([]byte("0123456789abcde"), 100_000)
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	if err := os.Rename(name, name+"2"); err != nil {
		return err
	}
	got, err := os.ReadFile(name + "2")
	if err != nil || !bytes.Equal(got, data) {
		return fmt.Errorf("read %d bytes, %w", len(got), err)
	}
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 1 || list[0].Name() != "a2" {
		return fmt.Errorf("the directory has %v, %w", list, err)
	}
	if _, err := os.Stat(name); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the old name: %w", err)
	}
	return os.RemoveAll(dir)
}

// parseMultipart parses a form whose file does not fit into the memory that the parser may use.
func parseMultipart(size string) ([]byte, error) {
	n, err := strconv.Atoi(size)
	if err != nil {
		return nil, err
	}
	var body bytes.Buffer
	w := multipart.NewWriter(&body)
	part, _ := w.CreateFormFile("f", "a.bin") // a buffer takes everything
	_, _ = part.Write(bytes.Repeat([]byte("x"), n))
	_ = w.Close()
	form, err := multipart.NewReader(&body, w.Boundary()).ReadForm(1 << 10)
	if err != nil {
		return nil, err
	}
	f, err := form.File["f"][0].Open()
	if err != nil {
		return nil, err
	}
	read, err := io.Copy(io.Discard, f)
	return fmt.Append(nil, read), errors.Join(err, f.Close(), form.RemoveAll())
}

// leaveOpen leaves an open file behind, and says which ones there were, and the new one's descriptor.
func leaveOpen() ([]byte, error) {
	list, err := os.ReadDir(os.TempDir())
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(os.TempDir(), "kept"))
	if err != nil {
		return nil, err
	}
	return fmt.Append(nil, len(list), f.Fd()), nil
}

// fill writes that many bytes to a file.
func fill(size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp("", "fill")
	if err != nil {
		return err
	}
	defer f.Close()
	for block := make([]byte, 1<<16); n > 0; n -= len(block) {
		if _, err := f.Write(block); err != nil {
			return err
		}
	}
	return nil
}
