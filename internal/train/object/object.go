// Package object reads and writes the objects of a bucket of S3.
//
// It has the requests that Outboard needs (GET, HEAD, PUT and DELETE of whole objects, and lists of
// them, with path-style URLs), signed by Signature Version 4. A client library was refused: minio-go brings
// ten modules into the graph of every program that imports package fabric.
package object

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
)

// Credentials sign requests. The zero value sends them without a signature.
type Credentials struct {
	Key, Secret string
	// Token is the token of temporary credentials, "" for none.
	Token string
}

// Options describe a bucket.
type Options struct {
	// Endpoint is the server's URL: "" means that of AWS in the region.
	Endpoint string
	// Region is part of signatures; "" means us-east-1.
	Region string
	Bucket string
	// Prefix precedes the names of objects.
	Prefix      string
	Credentials Credentials
	// Client makes the requests; nil: a new one.
	Client *http.Client
}

// A Bucket is a bucket of an S3 server.
type Bucket struct {
	opts   Options
	base   *url.URL
	client *http.Client
	now    func() time.Time
	pause  time.Duration // before the second attempt
}

const (
	defaultRegion = "us-east-1"
	// attempts bounds the attempts of a request that fails by the server or the network; firstPause
	// is the mean time before the second attempt, and doubles: a restart of the server, of up to some
	// 13 s, fails no checkpoint.
	attempts   = 8
	firstPause = 100 * time.Millisecond
	// silentAttempts bounds the attempts of a request to which the server does not reply: each takes
	// long, and a server that restarts refuses connections.
	silentAttempts = 3
	// requestLimit bounds one attempt, maxText an error's text in bytes.
	requestLimit = 5 * time.Minute
	maxText      = 16 << 10
	maxName      = 1024
	// perHost is the number of connections that are kept to the server.
	perHost = 32
)

// Parse reads s3://BUCKET/PREFIX, with endpoint=URL and region=NAME as its query.
func Parse(text string) (Options, error) {
	refuse := func(why string) (Options, error) {
		return Options{}, outboard.Errorf(outboard.Invalid, "objects", "%.200q: %s: want s3://BUCKET/PREFIX?endpoint=URL&region=NAME", text, why)
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "s3" || u.User != nil {
		return refuse("no bucket of S3")
	}
	if u.Host == "" || strings.ContainsAny(u.Host, ":/") {
		return refuse("no name of a bucket")
	}
	o := Options{Bucket: u.Host, Prefix: strings.TrimPrefix(u.Path, "/")}
	if o.Prefix != "" && !strings.HasSuffix(o.Prefix, "/") {
		o.Prefix += "/"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return refuse("malformed query")
	}
	for name, values := range query {
		switch name {
		case "endpoint":
			o.Endpoint = values[0]
		case "region":
			o.Region = values[0]
		default:
			return refuse("unknown setting " + name)
		}
	}
	_, err = o.url()
	if err != nil {
		return refuse(err.Error())
	}
	return o, nil
}

// url returns the URL of the bucket.
func (o *Options) url() (*url.URL, error) {
	endpoint := o.Endpoint
	if endpoint == "" {
		endpoint = "https://s3." + o.region() + ".amazonaws.com"
	}
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%.100q is no endpoint", endpoint)
	}
	return u.JoinPath("/", o.Bucket), nil
}

func (o *Options) region() string {
	if o.Region == "" {
		return defaultRegion
	}
	return o.Region
}

// Open returns the bucket; it makes no request.
func Open(o Options) (*Bucket, error) {
	base, err := o.url()
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "objects", "%w", err)
	}
	b := &Bucket{opts: o, base: base, client: o.Client, now: time.Now, pause: firstPause}
	if b.client == nil {
		transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:errcheck,forcetypeassert // it is one
		transport.MaxIdleConnsPerHost, transport.DisableCompression = perHost, true
		// A redirect would have a signature for another host.
		b.client = &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	return b, nil
}

// String returns the bucket's name, with the prefix.
func (b *Bucket) String() string { return "s3://" + b.opts.Bucket + "/" + b.opts.Prefix }

// Put writes an object, or replaces it.
func (b *Bucket) Put(ctx context.Context, name string, content []byte) error {
	_, err := b.request(ctx, call{method: http.MethodPut, name: name, body: content})
	return err
}

// Get returns an object of at most limit bytes. If there is none the error's kind is NotFound.
func (b *Bucket) Get(ctx context.Context, name string, limit int64) ([]byte, error) {
	r, err := b.request(ctx, call{method: http.MethodGet, name: name, limit: limit})
	return r.content, err
}

// Delete removes an object; a missing object is no error.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	_, err := b.request(ctx, call{method: http.MethodDelete, name: name})
	if outboard.KindOf(err) == outboard.NotFound {
		return nil
	}
	return err
}

// A retryableError says that a request may succeed if it is made again.
type retryableError struct{ error }

func (e retryableError) Unwrap() error { return e.error }

// A call is a request about one object, or about the bucket if it has a query.
type call struct {
	method, name string
	// query is the query of the URL in canonical form: sorted and escaped.
	query string
	body  []byte
	limit int64 // of the content of a reply to GET, in bytes
}

// A reply is the content of an object, and the header of the response.
type reply struct {
	content []byte
	header  http.Header
}

// request makes a request until it succeeds or is refused.
func (b *Bucket) request(ctx context.Context, c call) (reply, error) {
	if c.name == "" && c.query == "" || len(b.opts.Prefix)+len(c.name) > maxName {
		return reply{}, outboard.Errorf(outboard.Invalid, "object", "a name of %d bytes: want 1 to %d", len(c.name), maxName-len(b.opts.Prefix))
	}
	pause, silent := b.pause, 0
	for i := 1; ; i++ {
		r, err := b.attempt(ctx, c)
		retryable, ok := errors.AsType[retryableError](err)
		if !ok {
			return r, err
		}
		if errors.Is(err, errSilent) {
			silent++
		}
		if i == attempts || silent == silentAttempts {
			return reply{}, outboard.Errorf(outboard.Unreachable, "object "+b.String()+c.name, "%w, in %d attempts", retryable.error, i)
		}
		select {
		case <-time.After(pause/2 + rand.N(pause)):
			pause *= 2
		case <-ctx.Done():
			return reply{}, ctx.Err()
		}
	}
}

// urlOf returns the URL of a call: of its object, or of the bucket.
func (b *Bucket) urlOf(c call) string {
	u := *b.base
	if c.query == "" {
		u.Path += "/" + b.opts.Prefix + c.name
	}
	u.RawPath, u.RawQuery = escapePath(u.Path), c.query
	return u.String()
}

// attempt makes a request once.
func (b *Bucket) attempt(ctx context.Context, c call) (reply, error) {
	limited, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	limited, watch := watchProgress(limited, len(c.body))
	defer watch.stop()
	r, err := http.NewRequestWithContext(limited, c.method, b.urlOf(c), bytes.NewReader(c.body))
	if err != nil {
		return reply{}, outboard.Errorf(outboard.Invalid, "object", "%w", err)
	}
	watch.addTo(r)
	b.opts.Credentials.Sign(r, payloadHash(c.body), b.opts.region(), b.now())
	response, err := b.client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return reply{}, ctx.Err()
		}
		return reply{}, retryableError{watch.explain(err)}
	}
	defer response.Body.Close()
	response.Body = watch.reader(response.Body)
	if response.StatusCode/100 != 2 {
		return reply{}, b.refusal(c.name, response)
	}
	if c.method != http.MethodGet {
		return reply{header: response.Header}, nil
	}
	content, err := readContent(response, c.limit)
	switch {
	case err != nil && ctx.Err() == nil:
		return reply{}, retryableError{fmt.Errorf("its content was cut off after %d bytes: %w", len(content), watch.explain(err))}
	case err != nil:
		return reply{}, ctx.Err()
	case int64(len(content)) > c.limit:
		return reply{}, outboard.Errorf(outboard.Exhausted, "object "+b.String()+c.name, "it has more than %v", outboard.Bytes(c.limit))
	}
	return reply{content, response.Header}, nil
}

// readContent returns the content of a response, or the first limit+1 bytes of one that has more.
func readContent(response *http.Response, limit int64) ([]byte, error) {
	if n := response.ContentLength; n >= 0 && n <= limit {
		content := make([]byte, n)
		read, err := io.ReadFull(response.Body, content)
		return content[:read], err
	}
	return io.ReadAll(io.LimitReader(response.Body, limit+1))
}

// refusal returns the error by which the server refused a request.
func (b *Bucket) refusal(name string, response *http.Response) error {
	var text struct {
		Code    string `xml:"Code"`
		Message string `xml:"Message"`
	}
	// A reply to HEAD has no text, and some servers reply with other texts.
	if all, err := io.ReadAll(io.LimitReader(response.Body, maxText)); err == nil {
		_ = xml.Unmarshal(all, &text)
	}
	err := fmt.Errorf("the server replies %.100q", response.Status)
	if text.Code != "" {
		err = fmt.Errorf("the server replies %.100q, %.100q: %.300q", response.Status, text.Code, text.Message)
	}
	kind := outboard.Invalid
	switch status := response.StatusCode; {
	case status == http.StatusNotFound:
		kind = outboard.NotFound
	case status == http.StatusForbidden, status == http.StatusUnauthorized:
		kind = outboard.Denied
	case status >= 500, status == http.StatusTooManyRequests, status == http.StatusRequestTimeout:
		return retryableError{err}
	}
	return outboard.Errorf(kind, "object "+b.String()+name, "%w%s", err, b.remedy(response))
}

// maxSkew is the difference of clocks that S3 servers accept.
const maxSkew = 15 * time.Minute

// remedy says what may be wrong with a request that was refused: replies to HEAD have no text.
func (b *Bucket) remedy(r *http.Response) string {
	if region := r.Header.Get("X-Amz-Bucket-Region"); region != "" && region != b.opts.region() {
		return fmt.Sprintf("; the bucket is in another region: set region=%.50q", region)
	}
	if r.StatusCode != http.StatusForbidden && r.StatusCode != http.StatusUnauthorized {
		return ""
	}
	if b.opts.Credentials.Key == "" {
		return "; the request had no signature: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
	}
	date, err := http.ParseTime(r.Header.Get("Date"))
	if skew := b.now().Sub(date).Round(time.Second); err == nil && skew.Abs() > maxSkew {
		return fmt.Sprintf("; this machine's clock differs from the server's by %v: set it", skew)
	}
	return "; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that they permit to read, write, delete and list objects of the bucket"
}

func payloadHash(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}
