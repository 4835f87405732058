package object

import (
	"context"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// Ages are those by the clock of the server, which a node's clock may differ from.

// maxPage bounds a page of a list in bytes: a page has 1000 objects at most.
const maxPage = 8 << 20

// Age returns the time since an object was written. If there is none the error's kind is NotFound.
func (b *Bucket) Age(ctx context.Context, name string) (time.Duration, error) {
	r, err := b.request(ctx, call{method: http.MethodHead, name: name})
	if err != nil {
		return 0, err
	}
	written, _ := http.ParseTime(r.header.Get("Last-Modified")) // 0 if it is malformed.
	return b.ageAt(r.header, name, written)
}

// ageAt returns the age of an object that was written at a time, when a response was sent.
func (b *Bucket) ageAt(h http.Header, name string, written time.Time) (time.Duration, error) {
	now, err := http.ParseTime(h.Get("Date"))
	if err != nil || written.IsZero() {
		return 0, outboard.Errorf(outboard.Protocol, "object "+b.String()+name, "the server does not say when it was written, or what time it is")
	}
	return max(now.Sub(written), 0), nil
}

// listed is a page of the reply to ListObjectsV2.
type listed struct {
	IsTruncated           bool
	NextContinuationToken string
	Contents              []struct {
		Key          string
		Size         int64
		LastModified time.Time
	}
}

// maxEmptyPages bounds the pages without an object in a row: a server may send some where objects were
// deleted, and could send them for ever.
const maxEmptyPages = 1000

// List calls visit with the name, the bytes and the age of each object whose name begins with
// prefix, until visit returns an error.
func (b *Bucket) List(ctx context.Context, prefix string, visit func(name string, size int64, age time.Duration) error) error {
	token, empty := "", 0
	for {
		r, err := b.request(ctx, call{method: http.MethodGet, query: listQuery(b.opts.Prefix+prefix, token), limit: maxPage})
		if err != nil {
			return err
		}
		var page listed
		if err := xml.Unmarshal(r.content, &page); err != nil {
			return outboard.Errorf(outboard.Protocol, "list "+b.String()+prefix, "the server's list is malformed: %w", err)
		}
		for _, o := range page.Contents {
			name, ours := strings.CutPrefix(o.Key, b.opts.Prefix)
			if !ours || !strings.HasPrefix(name, prefix) {
				return outboard.Errorf(outboard.Protocol, "list "+b.String()+prefix, "the server's list has %.100q", o.Key)
			}
			age, err := b.ageAt(r.header, name, o.LastModified)
			if err != nil {
				return err
			}
			if err := visit(name, o.Size, age); err != nil {
				return err
			}
		}
		if !page.IsTruncated {
			return nil
		}
		if empty++; len(page.Contents) > 0 {
			empty = 0
		}
		if empty >= maxEmptyPages {
			return outboard.Errorf(outboard.Protocol, "list "+b.String()+prefix, "%d pages of the server's list in a row are empty", empty)
		}
		if page.NextContinuationToken == "" || page.NextContinuationToken == token {
			return outboard.Errorf(outboard.Protocol, "list "+b.String()+prefix, "the server's list does not go on")
		}
		token = page.NextContinuationToken
	}
}

// listQuery returns the query of ListObjectsV2 in canonical form.
func listQuery(prefix, token string) string {
	query := url.Values{"list-type": {"2"}, "prefix": {prefix}}
	if token != "" {
		query.Set("continuation-token", token)
	}
	return strings.ReplaceAll(query.Encode(), "+", "%20")
}
