// Command apigen generates the code that forwards an accelerator API from its description: `go
// generate ./internal/accel/...` runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard/internal/accel/gen"
)

func main() {
	var o options
	flag.StringVar(&o.description, "api", "", "the description, a .api file")
	flag.StringVar(&o.goDir, "go", ".", "where the worker's side goes")
	flag.StringVar(&o.cDir, "c", "", "where the driver library's side goes")
	flag.StringVar(&o.docs, "docs", "", "the reference table")
	flag.StringVar(&o.title, "title", "", "the reference table's title")
	flag.StringVar(&o.client, "client", "", "a package that gets the messages of a client in Go, and nothing else is made")
	flag.StringVar(&o.calls, "calls", "", "the calls, messages and notices that the client uses, with commas between")
	flag.StringVar(&o.headers, "headers", "/usr/include", "where the API's C headers are")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "apigen:", err)
		os.Exit(1)
	}
}

type options struct{ description, goDir, cDir, docs, title, headers, client, calls string }

func run(o options) error {
	text, err := os.ReadFile(o.description)
	if err != nil {
		return err
	}
	api, err := gen.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", o.description, err)
	}
	headers, err := api.ReadHeaders(o.headers)
	if err != nil {
		return fmt.Errorf("%s: %w", o.description, err)
	}
	if o.client != "" {
		return client(o, api)
	}
	files, err := api.Go(headers.Constants)
	if err != nil {
		return err
	}
	if err := write(o.goDir, files); err != nil {
		return err
	}
	if err := write(o.cDir, api.C(headers.Table)); err != nil {
		return err
	}
	return os.WriteFile(o.docs, api.Docs(o.title), 0o644)
}

// client generates the messages of a client in Go.
func client(o options, api *gen.API) error {
	dir, err := filepath.Abs(o.client)
	if err != nil {
		return err
	}
	text, err := api.Client(filepath.Base(dir), strings.Split(o.calls, ","))
	if err != nil {
		return err
	}
	return write(dir, map[string][]byte{"zz_messages.go": text})
}

func write(dir string, files map[string][]byte) error {
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}
