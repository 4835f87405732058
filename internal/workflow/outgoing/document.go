package outgoing

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
)

const (
	// maxDocument bounds an OpenAPI document.
	maxDocument = 4 << 20
	// documentAge is how long a document is used before it is fetched again.
	documentAge = 5 * time.Minute
	// maxDocuments bounds the documents that an app keeps.
	maxDocuments = 16
)

// documents are an app's OpenAPI documents by their URIs.
type documents struct {
	mu sync.Mutex
	by map[string]*document
}

func newDocuments() *documents { return &documents{by: map[string]*document{}} }

// document is an OpenAPI document.
type document struct {
	url     *url.URL
	root    map[string]any
	fetched time.Time
}

func (d *documents) get(uri string) *document {
	d.mu.Lock()
	defer d.mu.Unlock()
	if found := d.by[uri]; found != nil && time.Since(found.fetched) < documentAge {
		return found
	}
	return nil
}

// add adds a document, in the place of the oldest one if there are too many.
func (d *documents) add(uri string, found *document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by[uri] = found
	if len(d.by) <= maxDocuments {
		return
	}
	oldest := uri
	for key, other := range d.by {
		if other.fetched.Before(d.by[oldest].fetched) {
			oldest = key
		}
	}
	delete(d.by, oldest)
}

// document returns the document at a URI.
func (c *Caller) document(ctx context.Context, uri string) (*document, error) {
	if found := c.documents.get(uri); found != nil {
		return found, nil
	}
	u, err := parseEndpoint(uri)
	if err != nil {
		return nil, err
	}
	m := &message{method: http.MethodGet, url: u, header: http.Header{}}
	r, err := m.request(ctx)
	if err != nil {
		return nil, err
	}
	resp, body, err := c.send(r) //nolint:bodyclose // send has read and closed it
	if err != nil {
		return nil, err
	}
	if err := checkStatus(resp, body, false); err != nil {
		return nil, fmt.Errorf("fetch the OpenAPI document: %w", err)
	}
	if len(body) > maxDocument {
		return nil, invalid("the OpenAPI document is larger than %v", outboard.Bytes(maxDocument))
	}
	found := &document{url: u, fetched: time.Now()}
	if err := yaml.Unmarshal(body, &found.root); err != nil || found.root == nil { // JSON is YAML
		return nil, invalid("%s is no OpenAPI document: it is neither JSON nor YAML", uri)
	}
	c.documents.add(uri, found)
	return found, nil
}
