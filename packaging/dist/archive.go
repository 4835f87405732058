package main

import (
	"archive/tar"
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/template"
)

// writeTar writes the tree to a tar file, below a folder with the release's name.
func (r *release) writeTar(arch string, tree []entry) (err error) {
	name := fmt.Sprintf("outboard-%s-linux-%s", r.number(), arch)
	f, err := os.Create(filepath.Join(r.out, name+".tar.gz"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	packed, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(packed)
	for _, e := range tree {
		header := &tar.Header{
			Name: name + "/" + e.path, Mode: int64(e.mode), Size: int64(len(e.content)), ModTime: r.time,
			Uname: "root", Gname: "root", Format: tar.FormatPAX,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}
		if _, err := archive.Write(e.content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), packed.Close())
}

// writeDeb writes the tree as a Debian package, which it prepares in the folder dir.
func (r *release) writeDeb(ctx context.Context, arch string, tree []entry, dir string) error {
	size := 0
	for _, e := range tree {
		e = debian(e)
		size += len(e.content)
		if err := put(filepath.Join(dir, "usr", e.path), e.content, e.mode); err != nil {
			return err
		}
	}
	config, err := os.ReadFile("packaging/debian/outboard.yaml")
	if err != nil {
		return err
	}
	if err := put(filepath.Join(dir, "etc", "outboard", "outboard.yaml"), config, 0o644); err != nil {
		return err
	}
	if err := r.putControl(arch, size, filepath.Join(dir, "DEBIAN")); err != nil {
		return err
	}
	out := filepath.Join(r.out, fmt.Sprintf("outboard_%s_%s.deb", r.debVersion(), arch))
	cmd := exec.CommandContext(ctx, "dpkg-deb", "--root-owner-group", "-Zgzip", "--build", dir, out)
	// dpkg-deb clamps the times of the files to this one.
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(r.time.Unix(), 10))
	cmd.Stderr = os.Stderr
	return cmd.Run()
}

// debian changes files for which Debian's policy requires another form: manual pages and changelog
// are compressed, and the licence is named copyright.
func debian(e entry) entry {
	switch {
	case strings.HasPrefix(e.path, "share/man/"):
		return entry{e.path + ".gz", e.mode, compress(e.content)}
	case filepath.Base(e.path) == "CHANGELOG.md":
		return entry{filepath.Dir(e.path) + "/changelog.gz", e.mode, compress(e.content)}
	case filepath.Base(e.path) == "NOTICE":
		return entry{filepath.Dir(e.path) + "/NOTICE.gz", e.mode, compress(e.content)}
	case filepath.Base(e.path) == "LICENSE":
		return entry{filepath.Dir(e.path) + "/copyright", e.mode, e.content}
	}
	return e
}

func compress(content []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level exists
	_, _ = w.Write(content)                               // a buffer accepts all data
	_ = w.Close()
	return b.Bytes()
}

// putControl writes the package's description and its maintainer scripts.
func (r *release) putControl(arch string, size int, dir string) error {
	control, err := template.ParseFiles("packaging/debian/control")
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := control.Execute(&b, map[string]any{"Version": r.debVersion(), "Architecture": arch, "InstalledSize": size / 1024}); err != nil {
		return err
	}
	if err := put(filepath.Join(dir, "control"), b.Bytes(), 0o644); err != nil {
		return err
	}
	if err := put(filepath.Join(dir, "conffiles"), []byte("/etc/outboard/outboard.yaml\n"), 0o644); err != nil {
		return err
	}
	for _, script := range []string{"postinst", "prerm", "postrm"} {
		content, err := os.ReadFile("packaging/debian/" + script)
		if err != nil {
			return err
		}
		if err := put(filepath.Join(dir, script), content, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// put writes a file with exactly this mode, in folders that all users may read.
func put(file string, content []byte, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	if err := os.WriteFile(file, content, mode); err != nil {
		return err
	}
	return os.Chmod(file, mode)
}

// writeChecksums writes SHA256SUMS with the checksums of all other files of the folder.
func writeChecksums(dir string) (err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	f, err := os.Create(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriter(f)
	for _, e := range entries {
		if e.Name() == "SHA256SUMS" {
			continue
		}
		sum, err := sumFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s  %s\n", sum, e.Name())
	}
	return w.Flush()
}

func sumFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
