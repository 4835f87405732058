package cli

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"

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
	files, err := remote.Files(ctx, ref)
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
	in, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxConfigFile+1))
	if err != nil {
		return err
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
	in, err := f.Open(ctx)
	if err != nil {
		return err
	}
	defer in.Close()
	progress := newCopyProgress(env, "copying "+f.Name, f.Size)
	source := &sourceReader{Reader: in}
	_, err = c.PutArtifact(ctx, f.Digest, "", io.TeeReader(source, progress))
	progress.end()
	if source.err != nil && ctx.Err() == nil { // it is the reason of err, which blames the node
		return outboard.Errorf(outboard.Unreachable, "pull "+reference, "the registry ended the connection after %d of the %d bytes of %s (%w): try again",
			source.read, f.Size, f.Name, source.err)
	}
	return err
}

// A sourceReader records what was read, and the error that ended it.
type sourceReader struct {
	io.Reader
	read int64
	err  error // nil for the regular end
}

// Read implements io.Reader.
func (r *sourceReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.read += int64(n)
	if err != nil && err != io.EOF { // a wrapped EOF is premature
		r.err = err
	}
	return n, err
}
