package artifact

import (
	"context"
	"encoding/json"
	"io"
	"path"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/outboard-run/outboard"
)

// maxFiles bounds the files of an artifact.
const maxFiles = 64

// filePathAnnotation is the name of a layer's file in artifacts of the CNCF model specification.
const filePathAnnotation = "org.cncf.model.filepath"

// A RemoteFile is one file of an artifact in a registry: a layer that is the file itself, and that
// has its name as an annotation. `oras push` and the CNCF model specification ("raw" layers) write
// such artifacts.
type RemoteFile struct {
	// Name is the name without folders.
	Name, Digest string
	Size         int64

	ref   Reference
	repo  *remote.Repository
	layer ocispec.Descriptor
}

// Files returns the files of the artifact to which a reference refers.
func (r *Remote) Files(ctx context.Context, ref Reference) ([]RemoteFile, error) {
	op := "pull " + ref.String()
	repo, err := r.repository(ref)
	if err != nil {
		return nil, failure(op, ref, err)
	}
	_, text, err := inspect(ctx, repo, ref)
	if err != nil {
		return nil, failure(op, ref, err)
	}
	list, err := readFiles(text)
	if err != nil {
		return nil, failure(op, ref, err)
	}
	for i := range list {
		list[i].ref, list[i].repo = ref, repo
	}
	return list, nil
}

// readFiles decodes and validates the manifest of an artifact of files.
func readFiles(text []byte) ([]RemoteFile, error) {
	var m ocispec.Manifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, refused("its manifest is no JSON: %w", err)
	}
	if len(m.Layers) == 0 || len(m.Layers) > maxFiles {
		return nil, refused("it has %d files: want 1 to %d; an index of several artifacts is refused, name one of them", len(m.Layers), maxFiles)
	}
	names := map[string]bool{}
	var list []RemoteFile
	for _, layer := range m.Layers {
		name := layer.Annotations[ocispec.AnnotationTitle]
		if name == "" {
			name = layer.Annotations[filePathAnnotation]
		}
		name = path.Base(path.Clean("/" + strings.ReplaceAll(name, "\\", "/")))
		switch {
		case name == "/":
			return nil, refused("a layer has no name: push files with their names, as `oras push` does")
		case names[name]:
			return nil, refused("two of its files have the name %q", name)
		case strings.Contains(layer.MediaType, "tar"):
			return nil, refused("%q is an archive (%s): push the file itself", name, layer.MediaType)
		case layer.Size < 0 || layer.Size > MaxSize:
			return nil, refused("%q has %d bytes: at most %v", name, layer.Size, outboard.Bytes(MaxSize))
		}
		if err := CheckDigest(string(layer.Digest)); err != nil {
			return nil, err
		}
		names[name] = true
		list = append(list, RemoteFile{Name: name, Digest: string(layer.Digest), Size: layer.Size, layer: layer})
	}
	return list, nil
}

// Open fetches the file. The caller verifies the digest of the content, and closes the reader.
func (f *RemoteFile) Open(ctx context.Context) (io.ReadCloser, error) {
	in, err := f.repo.Blobs().Fetch(ctx, f.layer)
	return in, failure("pull "+f.ref.String(), f.ref, err)
}
