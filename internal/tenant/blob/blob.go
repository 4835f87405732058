// Package blob stores files by the digests of their content: the modules and workflows of apps,
// which all tenants of a node share, and the large results of executions, which belong to one
// tenant.
package blob

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
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

// Peers calls the tenant's processes on other nodes.
type Peers interface {
	ReadFile(ctx context.Context, node outboard.NodeID, digest string) ([]byte, error)
	StoreFile(ctx context.Context, node outboard.NodeID, owner string, content []byte) error
}

// Store holds the files of one tenant's process. Results lie in Dir, as values/DIGEST, with one
// more link for each execution that needs them. All methods may be called by several goroutines.
type Store struct {
	Dir       string
	Artifacts *artifact.Store
	Peers     Peers
	// Others returns the pool's nodes except this one; Known reports whether they are known yet.
	Others func() []outboard.NodeID
	Known  func() bool
}

const (
	// ValuesDir is the folder of the values, in Dir.
	ValuesDir = "values"
	// OwnersDir is the folder of their owners, in Dir.
	OwnersDir = "owners"
	algorithm = "sha256:"
)

// valuePath returns the path of a result.
func (f *Store) valuePath(digest string) string {
	return filepath.Join(f.Dir, ValuesDir, strings.TrimPrefix(digest, algorithm))
}

// Size returns the size of an artifact that this node has.
func (f *Store) Size(digest string) (int64, error) { return f.Artifacts.Size(digest) }

// ReadLocal returns a file that this node has.
func (f *Store) ReadLocal(ctx context.Context, digest string) ([]byte, error) {
	if err := artifact.CheckDigest(digest); err != nil {
		return nil, err
	}
	content, err := os.ReadFile(f.valuePath(digest))
	if err == nil && artifact.Digest(content) == digest {
		return content, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return f.Artifacts.Read(ctx, digest)
}

// Read returns a file, from this node or another one.
func (f *Store) Read(ctx context.Context, digest string) ([]byte, error) {
	content, err := f.ReadLocal(ctx, digest)
	if outboard.KindOf(err) != outboard.NotFound {
		return content, err
	}
	return f.Artifacts.Fetch(ctx, digest)
}

const (
	// fetchTimeout is how long a fetch retries unreachable nodes: other processes may be starting,
	// or may not have heard of a new app yet.
	fetchTimeout  = 5 * time.Second
	retryInterval = 100 * time.Millisecond
)

// Copies implements artifact.Source: it yields one copy of another node, which it has verified.
func (f *Store) Copies(ctx context.Context, digest string) iter.Seq2[io.ReadCloser, error] {
	return func(yield func(io.ReadCloser, error) bool) {
		content, err := f.requestPatiently(ctx, digest)
		if err != nil {
			yield(nil, err)
			return
		}
		if yield(io.NopCloser(bytes.NewReader(content)), nil) {
			yield(nil, outboard.Errorf(outboard.NotFound, "", "no other node has the file %s", digest))
		}
	}
}

// requestPatiently requests a file from the other nodes, and retries unreachable ones.
func (f *Store) requestPatiently(ctx context.Context, digest string) ([]byte, error) {
	patience, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	for {
		content, errs := f.request(ctx, digest)
		if content != nil {
			return content, nil
		}
		again := !f.Known() || slices.ContainsFunc(errs, func(err error) bool { return outboard.KindOf(err) == outboard.Unreachable })
		if again && pause(patience, retryInterval) == nil {
			continue
		}
		if len(errs) == 0 {
			errs = append(errs, errors.New("there is no other node"))
		}
		return nil, outboard.Errorf(outboard.NotFound, "read "+digest, "no node has it: %w", errors.Join(errs...))
	}
}

// hedgeAfter is how long a node may take to answer before the next one gets a hedged request.
const hedgeAfter = 500 * time.Millisecond

// request reads a file from the other nodes, one after the other. It goes on to the next node if a
// node does not have the file, returns other content, or takes longer than hedgeAfter: a node that
// is busy or about to leave does not delay this one.
func (f *Store) request(ctx context.Context, digest string) (content []byte, errs []error) {
	ctx, cancel := context.WithCancel(ctx)
	var requests sync.WaitGroup
	defer requests.Wait()
	defer cancel()
	nodes := f.Others()
	replies := make(chan reply, len(nodes))
	for sent, received := 0, 0; received < len(nodes); {
		var late <-chan time.Time
		if sent < len(nodes) {
			node := nodes[sent]
			sent++
			requests.Go(func() { replies <- f.requestFrom(ctx, node, digest) })
			late = time.After(hedgeAfter)
		}
		select {
		case r := <-replies:
			if r.err == nil {
				return r.content, nil
			}
			errs = append(errs, r.err)
			received++
		case <-late:
		}
	}
	return nil, errs
}

// reply is a node's reply to a request for a file.
type reply struct {
	content []byte
	err     error
}

func (f *Store) requestFrom(ctx context.Context, node outboard.NodeID, digest string) reply {
	content, err := f.Peers.ReadFile(ctx, node, digest)
	if found := artifact.Digest(content); err == nil && found != digest {
		err = outboard.Errorf(outboard.Protocol, fmt.Sprintf("node %s", node), "it has %s in its place", found)
	}
	return reply{content, err}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Save stores content for an owner on this node, and a copy on another node if there is one.
func (f *Store) Save(ctx context.Context, owner string, content []byte) (string, error) {
	digest, err := f.SaveLocal(ctx, owner, content)
	if err != nil {
		return "", err
	}
	var errs []error
	for _, node := range f.Others() {
		err := f.Peers.StoreFile(ctx, node, owner, content)
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

// SaveLocal stores content for an owner on this node.
func (f *Store) SaveLocal(_ context.Context, owner string, content []byte) (string, error) {
	digest := artifact.Digest(content)
	value := f.valuePath(digest)
	if _, err := os.Stat(value); errors.Is(err, fs.ErrNotExist) {
		if err := writeAtomically(value, content); err != nil {
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

// writeAtomically writes a file that appears under its name only when complete.
func writeAtomically(path string, content []byte) error {
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

func (f *Store) ownerDir(owner string) string {
	name := url.PathEscape(owner)
	// These names would mean the folder of all owners, or its parent.
	if name == "" || name == "." || name == ".." {
		name = "%" + strings.ReplaceAll(name, ".", "%2E")
	}
	return filepath.Join(f.Dir, OwnersDir, name)
}

// Owners returns the owners of files on this node for which nothing was stored since a time.
func (f *Store) Owners(before time.Time) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(f.Dir, OwnersDir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var owners []string
	for _, e := range entries {
		owner, malformed := url.PathUnescape(e.Name())
		info, gone := e.Info()
		if malformed == nil && gone == nil && info.ModTime().Before(before) { // a link changes the folder
			owners = append(owners, owner)
		}
	}
	return owners, err
}

// Forget removes an owner's files from this node. Files with another owner stay.
func (f *Store) Forget(_ context.Context, owner string) error {
	entries, err := os.ReadDir(f.ownerDir(owner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	errs := []error{os.RemoveAll(f.ownerDir(owner))}
	for _, e := range entries {
		value := filepath.Join(f.Dir, ValuesDir, e.Name())
		var info unix.Stat_t
		if unix.Stat(value, &info) == nil && info.Nlink == 1 {
			errs = append(errs, os.Remove(value))
		}
	}
	return errors.Join(errs...)
}
