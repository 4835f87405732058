// Command notices writes NOTICE: the copyright and licence of Outboard and of every Go module that
// is linked into the program. The file contains no versions, so that it changes only with the
// modules or their licences; versions are in the bill of materials that `make dist` writes.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/packaging/modules"
)

const header = `Outboard
Copyright 2025-2026 The Outboard Authors

Licensed under the Apache License, Version 2.0: see LICENSE.

The program contains the software that is listed here, under the licences that follow the list.
` + "`make notices`" + ` writes this file.
`

func main() {
	out := flag.String("out", "NOTICE", "the file to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *out)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out string) error {
	text, err := notice(ctx, "./cmd/outboard")
	if err != nil {
		return err
	}
	return os.WriteFile(out, []byte(text), 0o644) //nolint:gosec // for everybody to read
}

// notice returns the text of NOTICE for the program at path.
func notice(ctx context.Context, path string) (string, error) {
	linked, err := modules.Linked(ctx, path, "amd64", "arm64")
	if err != nil {
		return "", err
	}
	return format(linked), nil
}

// format lists the modules, and then each text once with the modules that contain it.
func format(linked []modules.Module) string {
	var b strings.Builder
	b.WriteString(header + "\n")
	users := map[string][]string{} // by a text's content
	var order []string
	for _, m := range linked {
		fmt.Fprintf(&b, "  %-34s %s\n", m.Licence, m.Path)
		for _, t := range m.Texts {
			if users[t.Content] == nil {
				order = append(order, t.Content)
			}
			users[t.Content] = append(users[t.Content], m.Path+" "+t.Name)
		}
	}
	for _, content := range order {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(slices.Compact(users[content]), "\n"), content)
	}
	return b.String()
}
