package tenant

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

// files are what is kept by its content: the modules and workflows of apps, which all
// tenants of a node share, and the large results of executions, which are the
// tenant's. Those lie in the process's folder, as values/DIGEST and with one more
// link for each execution that needs them.
type files struct {
	dir       string
	artifacts *artifact.Store
	peers     neighbours
	// others are the nodes that have a process of this tenant, this one left out; heard
	// says that they are known.
	others func() []outboard.NodeID
	heard  func() bool
}

// neighbours are the tenant's processes on other nodes, as far as they have files.
type neighbours interface {
	read(ctx context.Context, node outboard.NodeID, digest string) ([]byte, error)
	keep(ctx context.Context, node outboard.NodeID, owner string, content []byte) error
}

const (
	valuesDir = "values"
	ownersDir = "owners"
	algorithm = "sha256:"
)

// value is where a result lies.
func (f *files) value(digest string) string {
	return filepath.Join(f.dir, valuesDir, strings.TrimPrefix(digest, algorithm))
}

// readHere returns a file that this node has.
func (f *files) readHere(ctx context.Context, digest string) ([]byte, error) {
	if err := artifact.CheckDigest(digest); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(f.value(digest))
	if err == nil && artifact.Digest(content) == digest {
		return content, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f.artifacts.Read(ctx, digest)
}

// read returns a file, from this node or another one.
func (f *files) read(ctx context.Context, digest string) ([]byte, error) {
	content, err := f.readHere(ctx, digest)
	if outboard.KindOf(err) != outboard.NotFound {
		return content, err
	}
	return f.artifacts.Fetch(ctx, digest)
}

const (
	// fetchPatience is how long other nodes may take to come into reach of a process that
	// has just been started, or that was just told of a new app.
	fetchPatience = 5 * time.Second
	fetchPause    = 100 * time.Millisecond
)

// Fetch implements artifact.Source: it asks the other nodes, and those that can't be
// reached again for a while.
func (f *files) Fetch(ctx context.Context, digest string) (io.ReadCloser, error) {
	patience, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	for {
		content, errs := f.ask(ctx, digest)
		if content != nil {
			return io.NopCloser(bytes.NewReader(content)), nil
		}
		again := !f.heard() || slices.ContainsFunc(errs, func(err error) bool { return outboard.KindOf(err) == outboard.Unreachable })
		if again && pause(patience, fetchPause) == nil {
			continue
		}
		if len(errs) == 0 {
			errs = append(errs, errors.New("there is no other node"))
		}
		return nil, outboard.Errorf(outboard.NotFound, "read "+digest, "no node has it: %w", errors.Join(errs...))
	}
}

// hedgeAfter is how long a node may take to answer before the next one is asked as well.
const hedgeAfter = 500 * time.Millisecond

// ask asks the other nodes, the next one when one has not got it or takes long: a node that
// is busy or about to leave does not keep this one from serving. One that answers with
// something else is passed by.
func (f *files) ask(ctx context.Context, digest string) (content []byte, errs []error) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer cancel()
	nodes := f.others()
	answers := make(chan askedFile, len(nodes))
	for asked, answered := 0, 0; answered < len(nodes); {
		var late <-chan time.Time
		if asked < len(nodes) {
			node := nodes[asked]
			asked++
			asking.Go(func() { answers <- f.askOne(ctx, node, digest) })
			late = time.After(hedgeAfter)
		}
		select {
		case a := <-answers:
			if a.err == nil {
				return a.content, nil
			}
			errs = append(errs, a.err)
			answered++
		case <-late:
		}
	}
	return nil, errs
}

// An askedFile is a node's answer.
type askedFile struct {
	content []byte
	err     error
}

func (f *files) askOne(ctx context.Context, node outboard.NodeID, digest string) askedFile {
	content, err := f.peers.read(ctx, node, digest)
	if found := artifact.Digest(content); err == nil && found != digest {
		err = outboard.Errorf(outboard.Protocol, fmt.Sprintf("node %s", node), "it has %s in its place", found)
	}
	return askedFile{content, err}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// save keeps content for an owner on this node, and on another one where there is one.
func (f *files) save(ctx context.Context, owner string, content []byte) (string, error) {
	digest, err := f.saveHere(ctx, owner, content)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, node := range f.others() {
		err := f.peers.keep(ctx, node, owner, content)
		if err == nil {
			return digest, nil
		}
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return "", fmt.Errorf("save %s on a second node: %w", digest, errors.Join(errs...))
	}
	return digest, nil
}

// saveHere keeps content for an owner on this node.
func (f *files) saveHere(_ context.Context, owner string, content []byte) (string, error) {
	digest := artifact.Digest(content)
	value := f.value(digest)
	if _, err := os.Stat(value); errors.Is(err, fs.ErrNotExist) {
		if err := writeWhole(value, content); err != nil {
			return "", fmt.Errorf("save %s: %w", digest, err)
		}
	}
	link := filepath.Join(f.ownerDir(owner), filepath.Base(value))
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return "", fmt.Errorf("save %s: %w", digest, err)
	}
	if err := os.Link(value, link); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("save %s: %w", digest, err)
	}
	return digest, nil
}

// writeWhole writes a file that nobody sees before it is complete.
func writeWhole(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temporary.Name())
	}
	return err
}

func (f *files) ownerDir(owner string) string {
	return filepath.Join(f.dir, ownersDir, url.PathEscape(owner))
}

// forget gives up what is kept here for an owner. What nobody else owns goes.
func (f *files) forget(_ context.Context, owner string) error {
	entries, err := os.ReadDir(f.ownerDir(owner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	errs := []error{os.RemoveAll(f.ownerDir(owner))}
	for _, e := range entries {
		value := filepath.Join(f.dir, valuesDir, e.Name())
		var info unix.Stat_t
		if unix.Stat(value, &info) == nil && info.Nlink == 1 {
			errs = append(errs, os.Remove(value))
		}
	}
	return errors.Join(errs...)
}
