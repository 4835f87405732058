package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/outboard-run/outboard"
)

// An Artifact is a file that the pool's nodes keep by its content: a module, a
// workflow, a result.
type Artifact struct {
	// Digest is that of the content, "sha256:...".
	Digest string         `json:"digest"`
	Size   outboard.Bytes `json:"size"`
	// Name is what it is called in this node's store, "NAME:TAG" or the reference that it
	// was pulled from; "" for what only apps name.
	Name string `json:"name,omitempty"`
	// Manifest is the digest of the OCI manifest that packs it, for what has a name.
	Manifest string    `json:"manifest,omitempty"`
	Created  time.Time `json:"created,omitzero"`
}

// PutArtifact gives a file to the node, which checks its digest. What has no name
// stays while an app names it, at least an hour. One with a name must be a WebAssembly
// module; it stays, and takes the name from what had it.
func (c *Client) PutArtifact(ctx context.Context, digest, name string, content io.Reader) (Artifact, error) {
	path := "/v1/artifacts/" + url.PathEscape(digest)
	if name != "" {
		path += "?" + url.Values{"name": {name}}.Encode()
	}
	var a Artifact
	response, err := c.send(ctx, http.MethodPut, path, body{content, "application/octet-stream"})
	if err != nil {
		return a, err
	}
	err = decode(response, path, &a)
	return a, err
}

// HasArtifact reports whether the node has a file.
func (c *Client) HasArtifact(ctx context.Context, digest string) (bool, error) {
	response, err := c.open(ctx, http.MethodHead, "/v1/artifacts/"+url.PathEscape(digest), nil)
	if outboard.KindOf(err) == outboard.NotFound {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, response.Body.Close()
}

// Artifact reads a file, from this node or one that has it. It must be closed.
func (c *Client) Artifact(ctx context.Context, digest string) (io.ReadCloser, error) {
	response, err := c.open(ctx, http.MethodGet, "/v1/artifacts/"+url.PathEscape(digest), nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// Artifacts lists the files of the node's store that have names; the one called name
// where that is not "".
func (c *Client) Artifacts(ctx context.Context, name string) ([]Artifact, error) {
	return get[[]Artifact](ctx, c, "/v1/artifacts?"+url.Values{"name": {name}}.Encode())
}

// DeleteArtifact takes a name from the node's store. The file goes when nothing else
// names it.
func (c *Client) DeleteArtifact(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/artifacts?"+url.Values{"name": {name}}.Encode(), nil, nil)
}
