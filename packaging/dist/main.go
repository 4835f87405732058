// Command dist writes the files of a release: for each architecture a tar file and a Debian
// package, then a bill of materials and checksums. The same sources and version give the same
// bytes: times are that of the commit, owners are root, and paths are trimmed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// release holds the properties that all files of a release share.
type release struct {
	version string
	time    time.Time // of the commit
	out     string    // the folder of the release
	// libraries are the files of the compressed driver libraries, by architecture.
	libraries map[string]string
	// engines are the files of the engines' compressed libraries, by architecture and then by the
	// path in the tree at which the program embeds them.
	engines map[string]map[string]string
}

// architectures lists the architectures of a release, in order.
func architectures() []string { return []string{"amd64", "arm64"} }

func main() {
	r := release{libraries: map[string]string{}, engines: map[string]map[string]string{}}
	epoch := flag.Int64("epoch", 0, "the time of the commit, in seconds since 1970")
	flag.StringVar(&r.version, "version", "", "the version, such as v0.2.0")
	flag.StringVar(&r.out, "out", "dist", "the folder to write")
	flag.Func("library", "`ARCH=FILE`, the driver library of an architecture", func(text string) error {
		arch, file, ok := strings.Cut(text, "=")
		if !ok {
			return errors.New("want ARCH=FILE")
		}
		r.libraries[arch] = file
		return nil
	})
	flag.Func("engine", "`ARCH:PLACE=FILE`, an engine's library and where the program embeds it", r.addEngine)
	flag.Parse()
	r.time = time.Unix(*epoch, 0).UTC()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := r.make(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

func (r *release) addEngine(text string) error {
	arch, rest, ok := strings.Cut(text, ":")
	path, file, is := strings.Cut(rest, "=")
	if !ok || !is {
		return errors.New("want ARCH:PLACE=FILE")
	}
	if r.engines[arch] == nil {
		r.engines[arch] = map[string]string{}
	}
	r.engines[arch][path] = file
	return nil
}

func (r *release) make(ctx context.Context) error {
	if r.version == "" || r.time.Unix() == 0 {
		return errors.New("-version and -epoch are needed: use `make dist`")
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	for _, arch := range architectures() {
		fmt.Fprintf(os.Stderr, "dist: building for %s\n", arch)
		if err := r.makeArch(ctx, arch); err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
	}
	if err := r.writeSBOM(ctx); err != nil {
		return err
	}
	return writeChecksums(r.out)
}

func (r *release) makeArch(ctx context.Context, arch string) error {
	work, err := os.MkdirTemp("", "outboard-dist-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	binary := filepath.Join(work, "outboard")
	if err := r.build(ctx, arch, binary); err != nil {
		return err
	}
	tree, err := r.tree(binary)
	if err != nil {
		return err
	}
	if err := r.writeTar(arch, tree); err != nil {
		return err
	}
	return r.writeDeb(ctx, arch, tree, filepath.Join(work, "deb"))
}

// number returns the version without its leading v: "0.2.0", or the commit of a tree without tags.
func (r *release) number() string { return strings.TrimPrefix(r.version, "v") }

// debVersion returns the version by Debian's rules, where a later commit of a tree without tags
// sorts after an earlier one: "0.2.0", "0.2.0+5.gabc" (five commits later), or
// "0~20261122120000.gabc".
func (r *release) debVersion() string {
	number := r.number()
	if _, err := strconv.Atoi(strings.SplitN(number, ".", 2)[0]); err != nil || !strings.Contains(number, ".") {
		return "0~" + r.time.Format("20060102150405") + ".g" + strings.ReplaceAll(number, "-", ".")
	}
	tag, rest, later := strings.Cut(number, "-")
	if !later {
		return tag
	}
	return tag + "+" + strings.ReplaceAll(rest, "-", ".")
}
