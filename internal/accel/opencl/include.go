package opencl

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard/internal/wire"
)

// maxIncludes bounds the header files of one build.
const maxIncludes = 10000

// includePrefix stands for the folder of a build's header files in forwarded options and logs.
const includePrefix = "/outboard-include"

// install writes a build's header files to a folder of their own and replaces the prefix in
// the options by that folder. The folder is named after its contents and outlives the session:
// drivers cache programs by their options.
func (in *includes) install(options text, packed []byte) (text, error) {
	if len(packed) == 0 {
		return options, nil
	}
	in.output.wanted.Store(true) // a header may print
	sum := sha256.Sum256(packed)
	root := filepath.Join(in.dir, hex.EncodeToString(sum[:8]))
	if _, err := os.Stat(root); err != nil {
		if err := writeIncludes(root, packed); err != nil {
			return options, fmt.Errorf("include files: %w", err)
		}
	}
	options.value = strings.ReplaceAll(options.value, includePrefix, root)
	return options, nil
}

// writeIncludes writes the files under a temporary name first: another session of the same
// lease may write the same folder.
func writeIncludes(root string, packed []byte) error {
	if err := os.MkdirAll(filepath.Dir(root), 0o700); err != nil {
		return err
	}
	if err := removeOldest(filepath.Dir(root), maxIncludeDirs); err != nil {
		return err
	}
	draft, err := os.MkdirTemp(filepath.Dir(root), "draft-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(draft)
	d := wire.NewDecoder(packed)
	count := d.U64()
	if count > maxIncludes {
		return fmt.Errorf("%d are too many", count)
	}
	for range count {
		name, _ := d.String()
		content := d.Bytes()
		if d.Err() != nil {
			break
		}
		if err := writeInclude(draft, name, content); err != nil {
			return err
		}
	}
	if err := d.Done(); err != nil {
		return err
	}
	if err := os.Rename(draft, root); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

// maxIncludeDirs is how many folders of header files are kept.
const maxIncludeDirs = 64

// removeOldest removes the oldest folders of dir until fewer than keep are left.
func removeOldest(dir string, keep int) error {
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < keep {
		return err
	}
	made := func(e os.DirEntry) time.Time {
		info, err := e.Info()
		if err != nil {
			return time.Time{} // it is gone already
		}
		return info.ModTime()
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return made(a).Compare(made(b)) })
	for _, e := range entries[:len(entries)-keep+1] {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// hide replaces the folder of header files in a log by the prefix.
func (in *includes) hide(log []byte) []byte {
	folder := regexp.MustCompile(regexp.QuoteMeta(in.dir) + "/[0-9a-f]{16}")
	return folder.ReplaceAllLiteral(log, []byte(includePrefix))
}

// writeInclude writes one file under root; a name that leads out of root is interpreted relative to
// it.
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

// includes stores the header files of builds.
type includes struct {
	dir    string
	output *output
}
