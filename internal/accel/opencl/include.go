package opencl

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/internal/wire"
)

// maxIncludes bounds the header files of one build.
const maxIncludes = 10000

// include puts a build's header files under a folder of their own and points
// the -I options there.
func (w *Worker) include(options text, packed []byte) (text, error) {
	if len(packed) == 0 {
		return options, nil
	}
	w.output.wanted.Store(true) // a header may print
	w.includes++
	root := filepath.Join(w.opts.TmpDir, "include", strconv.Itoa(w.includes))
	d := wire.NewDecoder(packed)
	for count := 0; ; count++ {
		name, ok := d.String()
		content := d.Bytes()
		if !ok || d.Err() != nil || count > maxIncludes {
			return options, fmt.Errorf("include files: %w", orCount(d.Err(), count))
		}
		if err := writeInclude(root, name, content); err != nil {
			return options, err
		}
		if done := d; done.Done() == nil {
			break
		}
	}
	options.value = pointIncludes(options.value, root)
	return options, nil
}

func orCount(err error, count int) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("file %d has no name, or there are too many", count)
}

// writeInclude writes one file under root, wherever its name says it was.
func writeInclude(root, name string, content []byte) error {
	path := filepath.Join(root, filepath.Clean("/"+name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("include file: %w", err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("include file: %w", err)
	}
	return nil
}

// pointIncludes puts root before the path of every -I.
func pointIncludes(options, root string) string {
	var b strings.Builder
	rest := options
	for {
		at := strings.Index(rest, "-I")
		if at < 0 || at > 0 && rest[at-1] != ' ' && rest[at-1] != '\t' {
			if at < 0 {
				b.WriteString(rest)
				return b.String()
			}
			b.WriteString(rest[:at+2])
			rest = rest[at+2:]
			continue
		}
		b.WriteString(rest[:at+2])
		path := strings.TrimLeft(rest[at+2:], " \t\"'")
		b.WriteString(rest[at+2 : len(rest)-len(path)])
		if strings.HasPrefix(path, "/") {
			b.WriteString(root)
		}
		rest = path
	}
}
