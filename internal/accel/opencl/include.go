package opencl

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/internal/wire"
)

// maxIncludes bounds the header files of one build.
const maxIncludes = 10000

// includePrefix stands for the folder of a build's header files, in what
// travels: options and logs.
const includePrefix = "/outboard-include"

// include puts a build's header files into a folder of their own and points
// the options there.
func (w *Worker) include(options text, packed []byte) (text, error) {
	if len(packed) == 0 {
		return options, nil
	}
	w.output.wanted.Store(true) // a header may print
	w.includes++
	root := filepath.Join(w.includeDir(), strconv.Itoa(w.includes))
	d := wire.NewDecoder(packed)
	count := d.U64()
	if count > maxIncludes {
		return options, fmt.Errorf("include files: %d are too many", count)
	}
	for range count {
		name, _ := d.String()
		content := d.Bytes()
		if d.Err() != nil {
			break
		}
		if err := writeInclude(root, name, content); err != nil {
			return options, err
		}
	}
	options.value = strings.ReplaceAll(options.value, includePrefix, root)
	return options, d.Done()
}

func (w *Worker) includeDir() string { return filepath.Join(w.opts.TmpDir, "include") }

// hideIncludes puts the prefix back into a log.
func (w *Worker) hideIncludes(log []byte) []byte {
	folder := regexp.MustCompile(regexp.QuoteMeta(w.includeDir()) + "/[0-9]+")
	return folder.ReplaceAllLiteral(log, []byte(includePrefix))
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
