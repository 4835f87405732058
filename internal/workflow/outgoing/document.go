package outgoing

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
)

const (
	// maxDocument bounds an OpenAPI document.
	maxDocument = 4 << 20
	// documentAge is how long a document is used before it is fetched again.
	documentAge = 5 * time.Minute
	// maxDocuments bounds the documents that an app keeps, and maxKeptValues their values.
	maxDocuments  = 16
	maxKeptValues = 2 * maxValues
)

// documents are an app's OpenAPI documents by their URIs.
type documents struct {
	mu       sync.Mutex
	by       map[string]*document
	fetching map[string]chan struct{} // closed when the call that fetches the document has ended
}

func newDocuments() *documents {
	return &documents{by: map[string]*document{}, fetching: map[string]chan struct{}{}}
}

// document is an OpenAPI document.
type document struct {
	url     *url.URL
	root    map[string]any
	values  int // in root
	fetched time.Time
}

// get returns a document, or nil to the one call that has to fetch it and to call fetched then.
// Other calls wait: a document takes much memory while it is parsed.
func (d *documents) get(ctx context.Context, uri string) (*document, error) {
	for {
		d.mu.Lock()
		found, busy := d.by[uri], d.fetching[uri]
		fresh := found != nil && time.Since(found.fetched) < documentAge
		if !fresh && busy == nil {
			d.fetching[uri] = make(chan struct{})
		}
		d.mu.Unlock()
		switch {
		case fresh:
			return found, nil
		case busy == nil:
			return nil, nil //nolint:nilnil // The caller has to fetch it.
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// fetched ends the fetching of a document, which may have failed.
func (d *documents) fetched(uri string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.fetching[uri])
	delete(d.fetching, uri)
}

// add adds a document, in the place of the oldest ones if there are too many.
func (d *documents) add(uri string, found *document) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.by[uri] = found
	for len(d.by) > maxDocuments || d.values() > maxKeptValues {
		oldest := uri
		for key, other := range d.by {
			if other.fetched.Before(d.by[oldest].fetched) {
				oldest = key
			}
		}
		delete(d.by, oldest)
	}
}

// values returns the number of values of all documents. Locks: d.mu is held.
func (d *documents) values() (n int) {
	for _, of := range d.by {
		n += of.values
	}
	return n
}

// document returns the document at a URI.
func (c *Caller) document(ctx context.Context, uri string) (*document, error) {
	if found, err := c.documents.get(ctx, uri); found != nil || err != nil {
		return found, err
	}
	defer c.documents.fetched(uri)
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
	if found.root, found.values, err = parseDocument(body); err != nil {
		return nil, invalid("%.200q is no OpenAPI document: %w", uri, err)
	}
	c.documents.add(uri, found)
	return found, nil
}
