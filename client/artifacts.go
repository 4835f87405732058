package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/outboard-run/outboard"
)

// An Artifact is a file in the content-addressed stores of the pool's nodes: a module, a
// workflow or a result.
type Artifact struct {
	// Digest is the digest of the content, "sha256:...".
	Digest string         `json:"digest"`
	Size   outboard.Bytes `json:"size"`
	// Name is the artifact's name in this node's store, "NAME:TAG" or the reference from which it
	// was pulled; "" for a file to which only apps refer.
	Name string `json:"name,omitempty"`
	// Manifest is the digest of the OCI manifest of an artifact with a name.
	Manifest string    `json:"manifest,omitempty"`
	Created  time.Time `json:"created,omitzero"`
}

// PutArtifact stores a file on the node, which verifies its digest. A file without a name is
// retained while an app refers to it, and for at least an hour. A file with a name must be a
// WebAssembly module; it is retained while it has the name. The name may be moved from another
// module.
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

// Artifact opens a file of this node's store or of another node's. The caller must close it.
func (c *Client) Artifact(ctx context.Context, digest string) (io.ReadCloser, error) {
	response, err := c.open(ctx, http.MethodGet, "/v1/artifacts/"+url.PathEscape(digest), nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// Artifacts lists the named files of the node's store, or only the file called name if name is not
// "".
func (c *Client) Artifacts(ctx context.Context, name string) ([]Artifact, error) {
	return get[[]Artifact](ctx, c, "/v1/artifacts?"+url.Values{"name": {name}}.Encode())
}

// DeleteArtifact deletes a name from the node's store. The file is deleted later, once no other
// name or app refers to it.
func (c *Client) DeleteArtifact(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/artifacts?"+url.Values{"name": {name}}.Encode(), nil, nil)
}
