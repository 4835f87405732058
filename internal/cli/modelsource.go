package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/artifact"
)

// addLocalFiles copies files of this machine to the node and adds them to the push.
func addLocalFiles(ctx context.Context, env *Env, c *client.Client, p *client.ModelPush, paths []string) error {
	for _, path := range paths {
		if p.Files[filepath.Base(path)] != "" {
			return usage("two files have the name %s", filepath.Base(path))
		}
		digest, err := uploadFile(ctx, env, c, path)
		if err != nil {
			return err
		}
		p.Files[filepath.Base(path)] = digest
	}
	return nil
}

// The name of a configuration among the files of an artifact, and its greatest size in bytes.
const (
	configFile    = "model.yaml"
	maxConfigFile = 64 << 10
)

// addRemoteFiles copies the files of an artifact in a registry to the node and adds them to the
// push: the only .onnx or .gguf file is the main file; model.yaml is the configuration unless the
// push has one already.
func addRemoteFiles(ctx context.Context, env *Env, c *client.Client, p *client.ModelPush, reference string) error {
	ref, err := parseReference(reference)
	if err != nil {
		return err
	}
	remote, err := openRemote(env)
	if err != nil {
		return err
	}
	resolving, cancel := context.WithTimeout(ctx, stallLimit)
	defer cancel()
	files, err := remote.Files(resolving, ref)
	if err != nil && errors.Is(resolving.Err(), context.DeadlineExceeded) {
		return outboard.Errorf(outboard.Unreachable, "pull "+reference, "the registry did not send the manifest within %v: try again once it responds", stallLimit)
	}
	if err != nil {
		return err
	}
	if p.Main, err = mainFile(reference, files); err != nil {
		return err
	}
	for i := range files {
		f := &files[i]
		if f.Name == configFile {
			if err := readRemoteConfig(ctx, p, f, reference); err != nil {
				return err
			}
			continue
		}
		if err := copyRemoteFile(ctx, env, c, f, reference); err != nil {
			return err
		}
		p.Files[f.Name] = f.Digest
	}
	return nil
}

// mainFile returns the name of the only model file among files.
func mainFile(reference string, files []artifact.RemoteFile) (string, error) {
	var models, names []string
	for i := range files {
		names = append(names, files[i].Name)
		if slices.Contains([]string{".onnx", ".gguf"}, strings.ToLower(filepath.Ext(files[i].Name))) {
			models = append(models, files[i].Name)
		}
	}
	if len(models) != 1 {
		return "", outboard.Errorf(outboard.Invalid, "", "%s has the files %s: want one .onnx or .gguf file among them", reference, strings.Join(names, ", "))
	}
	return models[0], nil
}

func readRemoteConfig(ctx context.Context, p *client.ModelPush, f *artifact.RemoteFile, reference string) error {
	if p.ConfigFile != "" {
		return nil
	}
	in := openSource(ctx, f.Open)
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxConfigFile+1))
	if err != nil {
		return outboard.Errorf(outboard.Unreachable, "pull "+reference, "%w", in.explain(f.Name, f.Size))
	}
	if artifact.Digest(text) != f.Digest {
		return outboard.Errorf(outboard.Protocol, "pull "+reference, "%s is not what the manifest says", configFile)
	}
	p.Config, p.ConfigFile = string(text), reference+"/"+configFile
	return nil
}

// copyRemoteFile streams a file to the node, which verifies its digest, unless the node has the
// file.
func copyRemoteFile(ctx context.Context, env *Env, c *client.Client, f *artifact.RemoteFile, reference string) error {
	if has, err := c.HasArtifact(ctx, f.Digest); has || err != nil {
		return err
	}
	source := openSource(ctx, f.Open)
	defer source.Close()
	progress := newCopyProgress(env, "copying "+f.Name, f.Size)
	_, err := c.PutArtifact(ctx, f.Digest, "", io.TeeReader(source, progress))
	progress.end()
	if why := source.explain(f.Name, f.Size); why != nil && ctx.Err() == nil {
		return outboard.Errorf(outboard.Unreachable, "pull "+reference, "%w", why) // err blames the node
	}
	return err
}

// stallLimit is how long a registry may send nothing while a file of it is read.
const stallLimit = 2 * time.Minute

var errStalled = errors.New("the registry sends nothing")

// A sourceReader reads a file of a registry, which it opens with the first Read. It records what was
// read, and the error that ended it: errStalled if the registry sent nothing for stallLimit.
type sourceReader struct {
	open    func() (io.ReadCloser, error)
	in      io.ReadCloser // nil before the first Read
	cancel  func()
	stall   *time.Timer // runs while a Read waits
	stalled atomic.Bool
	read    int64
	err     error // nil for the regular end
}

func openSource(ctx context.Context, open func(context.Context) (io.ReadCloser, error)) *sourceReader {
	ctx, cancel := context.WithCancel(ctx)
	r := &sourceReader{cancel: cancel, open: func() (io.ReadCloser, error) { return open(ctx) }}
	r.stall = time.AfterFunc(stallLimit, func() {
		r.stalled.Store(true)
		cancel()
	})
	r.stall.Stop()
	return r
}

// Read implements io.Reader.
func (r *sourceReader) Read(b []byte) (n int, err error) {
	r.stall.Reset(stallLimit)
	defer r.stall.Stop()
	if r.in == nil {
		r.in, err = r.open()
	}
	if err == nil {
		n, err = r.in.Read(b)
	}
	r.read += int64(n)
	if err != nil && r.stalled.Load() {
		err = errStalled
	}
	if err != nil && err != io.EOF { //nolint:errorlint // a wrapped EOF is premature
		r.err = err
	}
	return n, err
}

// explain returns why a file of so many bytes was not read to its end, nil if it was.
func (r *sourceReader) explain(name string, size int64) error {
	switch {
	case r.err == nil:
		return nil
	case errors.Is(r.err, errStalled):
		return fmt.Errorf("the registry sent nothing for %v after %d of the %d bytes of %s: try again once it responds, or push the file itself", stallLimit, r.read, size, name)
	case r.in == nil:
		return r.err
	}
	return fmt.Errorf("the registry ended the connection after %d of the %d bytes of %s (%w): try again", r.read, size, name, r.err)
}

// Close implements io.Closer.
func (r *sourceReader) Close() error {
	r.cancel()
	if r.in == nil {
		return nil
	}
	return r.in.Close()
}
