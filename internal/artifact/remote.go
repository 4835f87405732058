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

// RemoteOptions say how to reach registries.
type RemoteOptions struct {
	// DockerConfig is the file with the credentials that `docker login` wrote, "" for the
	// one of this user.
	DockerConfig string
	// HTTP is what speaks with registries. The default tries again what may work then.
	HTTP *http.Client
}

// A Remote pushes modules to OCI registries and pulls them from there. Registries on
// this machine are spoken to without TLS.
type Remote struct{ client *auth.Client }

// NewRemote reads the credentials.
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
	// Manifest is the digest of what packs it, for a lock.
	Manifest string
	Module   []byte
	Info     Info

	packed *packed
}

// Resolve is the digest of the manifest that a reference leads to now.
func (r *Remote) Resolve(ctx context.Context, ref Reference) (string, error) {
	op := "resolve " + ref.String()
	repo, err := r.repository(ref)
	if err != nil {
		return "", failure(op, ref, err)
	}
	d, err := repo.Resolve(ctx, ref.what())
	if err != nil {
		return "", failure(op, ref, err)
	}
	return string(d.Digest), nil
}

// Pull brings a module, checked.
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

// inspect fetches the manifest that a reference leads to.
func inspect(ctx context.Context, repo *remote.Repository, ref Reference) (ocispec.Descriptor, []byte, error) {
	d, err := repo.Resolve(ctx, ref.what())
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

// partial says of which part of an artifact an error is.
func partial(part string, err error) error { return fmt.Errorf("its %s: %w", part, err) }

// Push packs a module and brings it to a registry, and returns the digest of what
// packs it. A reference with a digest is refused when that is another one. Where the
// reference leads to the same module of the same author already, that stays as it is:
// with another time it would have another digest, and no lock would know it.
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

// existing is what a reference leads to.
type existing struct {
	manifest ocispec.Descriptor
	layer    digest.Digest
	info     Info
}

// exists finds what a reference leads to. It is not ok where that is nothing that could
// stay: why, pushing will say.
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

// retag gives what is there already the tag of a reference that has a digest, too.
func retag(ctx context.Context, repo *remote.Repository, ref Reference, d ocispec.Descriptor) error {
	if ref.Tag == "" || ref.Digest == "" {
		return nil
	}
	return repo.Tag(ctx, d, ref.Tag)
}

// Keep puts a module that was pulled into the store, under a name.
func (s *Store) Keep(ctx context.Context, name string, p *Pulled) (Named, error) {
	return s.keep(ctx, "keep artifact "+name, name, p.packed)
}

// failure gives an error of a registry its kind, and says what to do.
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
		kind, err = outboard.Denied, fmt.Errorf("the registry wants a user's name and password: log in with `docker login %s`, or with another client that writes its file", ref.Registry)
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		kind, err = outboard.Denied, fmt.Errorf("%w: log in with `docker login %s`, or with another client that writes its file", err, ref.Registry)
	case errors.Is(err, content.ErrMismatchedDigest), errors.Is(err, content.ErrTrailingData), errors.Is(err, content.ErrInvalidDescriptorSize):
		kind, err = outboard.Protocol, fmt.Errorf("the registry sent something else than it was asked for: %w", err)
	case !answered:
		kind = outboard.Unreachable
	}
	return &outboard.Error{Op: op, Kind: kind, Err: err}
}
