package artifact

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/credentials"
	"oras.land/oras-go/v2/registry/remote/errcode"
	"oras.land/oras-go/v2/registry/remote/retry"

	"github.com/outboard-run/outboard"
)

// RemoteOptions configures a Remote.
type RemoteOptions struct {
	// DockerConfig is the file with the credentials that `docker login` wrote, "" for the
	// file of this user.
	DockerConfig string
	// HTTP is the HTTP client for registries. The default retries after transient errors.
	HTTP *http.Client
}

// A Remote pushes modules to OCI registries and pulls them. It uses no TLS for registries on
// this machine.
type Remote struct{ client *auth.Client }

// NewRemote reads the credentials and returns a Remote.
func NewRemote(opts RemoteOptions) (*Remote, error) {
	store, err := openCredentials(opts.DockerConfig)
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "credentials for registries", "%w", err)
	}
	if opts.HTTP == nil {
		opts.HTTP = retry.DefaultClient
	}
	client := &auth.Client{Client: opts.HTTP, Credential: credentials.Credential(store), Cache: auth.NewCache()}
	client.SetUserAgent("outboard")
	return &Remote{client}, nil
}

func openCredentials(file string) (credentials.Store, error) {
	if file == "" {
		return credentials.NewStoreFromDocker(credentials.StoreOptions{})
	}
	return credentials.NewStore(file, credentials.StoreOptions{})
}

func (r *Remote) repository(ref Reference) (*remote.Repository, error) {
	if ref.Local() {
		return nil, outboard.Errorf(outboard.Invalid, "", "it names no registry: write HOST/REPO:TAG")
	}
	repo, err := remote.NewRepository(ref.Registry + "/" + ref.Repository)
	if err != nil {
		return nil, &outboard.Error{Kind: outboard.Invalid, Err: err}
	}
	repo.Client, repo.PlainHTTP = r.client, loopback(ref.Registry)
	return repo, nil
}

// A Pulled is a module from a registry.
type Pulled struct {
	// Manifest is the digest of the module's OCI manifest, for a lock file.
	Manifest string
	Module   []byte
	Info     Info

	packed *packed
}

// Resolve returns the digest of the manifest to which a reference refers now.
func (r *Remote) Resolve(ctx context.Context, ref Reference) (string, error) {
	op := "resolve " + ref.String()
	repo, err := r.repository(ref)
	if err != nil {
		return "", failure(op, ref, err)
	}
	d, err := repo.Resolve(ctx, ref.version())
	if err != nil {
		return "", failure(op, ref, err)
	}
	return string(d.Digest), nil
}

// Pull fetches and validates a module.
func (r *Remote) Pull(ctx context.Context, ref Reference) (*Pulled, error) {
	op := "pull " + ref.String()
	repo, err := r.repository(ref)
	if err != nil {
		return nil, failure(op, ref, err)
	}
	p, d, err := pull(ctx, repo, ref)
	if err != nil {
		return nil, failure(op, ref, err)
	}
	return &Pulled{Manifest: string(d.Digest), Module: p.module, Info: p.info, packed: p}, nil
}

func pull(ctx context.Context, repo *remote.Repository, ref Reference) (*packed, ocispec.Descriptor, error) {
	d, text, err := inspect(ctx, repo, ref)
	if err != nil {
		return nil, d, err
	}
	m, err := readManifest(d.MediaType, text)
	if err != nil {
		return nil, d, err
	}
	config, err := content.FetchAll(ctx, repo, m.Config)
	if err != nil {
		return nil, d, partial("config", err)
	}
	// The config says whether the module can be run, before it is fetched.
	if _, err := readConfig(config, m.Layers[0]); err != nil {
		return nil, d, err
	}
	module, err := content.FetchAll(ctx, repo, m.Layers[0])
	if err != nil {
		return nil, d, partial("module", err)
	}
	p, err := unpack(d.MediaType, text, config, module)
	return p, d, err
}

// inspect fetches the manifest to which a reference refers.
func inspect(ctx context.Context, repo *remote.Repository, ref Reference) (ocispec.Descriptor, []byte, error) {
	d, err := repo.Resolve(ctx, ref.version())
	if err != nil {
		return d, nil, err
	}
	if d.Size > maxManifest {
		return d, nil, refused("its manifest has %d bytes", d.Size)
	}
	text, err := content.FetchAll(ctx, repo, d) // which checks the digest and the size
	if err != nil {
		err = partial("manifest", err)
	}
	return d, text, err
}

// partial adds the part of an artifact that an error concerns.
func partial(part string, err error) error { return fmt.Errorf("its %s: %w", part, err) }

// Push pushes a module to a registry and returns the digest of its manifest. A digest in the
// reference must be that digest. If the reference already refers to the same module by the
// same author, Push leaves it unchanged: a manifest with a new time would have a new digest,
// which no lock file contains.
func (r *Remote) Push(ctx context.Context, ref Reference, module []byte, info Info) (string, error) {
	op := "push " + ref.String()
	repo, err := r.repository(ref)
	if err != nil {
		return "", failure(op, ref, err)
	}
	p, err := pack(module, info)
	if err != nil {
		return "", failure(op, ref, err)
	}
	if have, ok := exists(ctx, repo, ref); ok && have.info.Author == info.Author && string(have.layer) == Digest(module) {
		return string(have.manifest.Digest), failure(op, ref, retag(ctx, repo, ref, have.manifest))
	}
	d := p.descriptor()
	if ref.Digest != "" && ref.Digest != string(d.Digest) {
		return "", failure(op, ref, differs(ref.Digest, string(d.Digest)))
	}
	if err := push(ctx, repo, ref, p); err != nil {
		return "", failure(op, ref, err)
	}
	return string(d.Digest), nil
}

// existing is the module to which a reference refers.
type existing struct {
	manifest ocispec.Descriptor
	layer    digest.Digest
	info     Info
}

// exists finds the module to which a reference refers. It returns false after any error, which
// the subsequent push meets again and reports.
func exists(ctx context.Context, repo *remote.Repository, ref Reference) (existing, bool) {
	d, text, err := inspect(ctx, repo, ref)
	if err != nil {
		return existing{}, false
	}
	m, err := readManifest(d.MediaType, text)
	if err != nil {
		return existing{}, false
	}
	config, err := content.FetchAll(ctx, repo, m.Config)
	if err != nil {
		return existing{}, false
	}
	info, err := readConfig(config, m.Layers[0])
	if err != nil {
		return existing{}, false
	}
	has, err := repo.Blobs().Exists(ctx, m.Layers[0])
	return existing{d, m.Layers[0].Digest, info}, err == nil && has
}

func push(ctx context.Context, repo *remote.Repository, ref Reference, p *packed) error {
	for _, part := range []struct {
		mediaType string
		content   []byte
	}{{LayerType, p.module}, {ConfigType, p.config}} {
		d := describe(part.mediaType, part.content)
		if there, err := repo.Blobs().Exists(ctx, d); err != nil {
			return err
		} else if there {
			continue
		}
		if err := repo.Blobs().Push(ctx, d, bytes.NewReader(part.content)); err != nil {
			return err
		}
	}
	return repo.PushReference(ctx, p.descriptor(), bytes.NewReader(p.manifest), cmp.Or(ref.Tag, ref.Digest))
}

// retag adds the tag of a reference that also has a digest to an existing manifest.
func retag(ctx context.Context, repo *remote.Repository, ref Reference, d ocispec.Descriptor) error {
	if ref.Tag == "" || ref.Digest == "" {
		return nil
	}
	return repo.Tag(ctx, d, ref.Tag)
}

// SavePulled stores a pulled module under a name.
func (s *Store) SavePulled(ctx context.Context, name string, p *Pulled) (Named, error) {
	return s.saveNamed(ctx, "store artifact "+name, name, p.packed)
}

// failure adds the kind and the remedy to an error of a registry.
func failure(op string, ref Reference, err error) error {
	if err == nil {
		return nil
	}
	kind := outboard.KindOf(err)
	answer, answered := errors.AsType[*errcode.ErrorResponse](err)
	status := 0
	if answered {
		status = answer.StatusCode
	}
	switch {
	case kind != outboard.Other, errors.Is(err, context.Canceled):
	case errors.Is(err, errdef.ErrNotFound) || status == http.StatusNotFound:
		kind, err = outboard.NotFound, fmt.Errorf("the registry %s does not have it: %w", ref.Registry, err)
	case errors.Is(err, auth.ErrBasicCredentialNotFound):
		kind, err = outboard.Denied, fmt.Errorf("the registry requires a user name and a password: log in with `docker login %s`, or with another client that writes its file", ref.Registry)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind, err = outboard.Denied, fmt.Errorf("%w: log in with `docker login %s`, or with another client that writes its file", err, ref.Registry)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, content.ErrInvalidDescriptorSize):
		kind, err = outboard.Protocol, fmt.Errorf("the registry sent content that does not match its descriptor: %w", err)
	case !answered:
		kind = outboard.Unreachable
	}
	return &outboard.Error{Op: op, Kind: kind, Err: err}
}
