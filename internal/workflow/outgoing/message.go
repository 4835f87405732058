package outgoing

import (
	"bytes"
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/itchyny/gojq"
)

// message is a request before it is sent.
type message struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
}

// newMessage returns the request of a call: http.
func newMessage(req *Request) (*message, error) {
	with := req.With
	text, _ := with["endpoint"].(string)
	u, err := parseEndpoint(text)
	if err != nil {
		return nil, err
	}
	method, _ := with["method"].(string)
	m := &message{method: method, url: u, header: http.Header{}}
	if err := m.setHeaders(with["headers"]); err != nil {
		return nil, err
	}
	if err := m.addQuery(with["query"]); err != nil {
		return nil, err
	}
	if req.Stored {
		m.body = req.Body
		m.setType(req.Type)
	} else if err := m.setBody(with["body"]); err != nil {
		return nil, err
	}
	if idempotencyKey := "Idempotency-Key"; (method == http.MethodPost || method == http.MethodPatch) && m.header.Get(idempotencyKey) == "" && req.Key != "" {
		m.header.Set(idempotencyKey, req.Key)
	}
	return m, nil
}

// parseEndpoint parses a URI that an expression may have made.
func parseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, invalid("the endpoint %.200q is no URI: %w", text, err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, invalid("the endpoint %.200q must begin with https:// or http:// and a host", text)
	case u.User != nil:
		return nil, invalid("the endpoint has credentials: write authentication")
	}
	u.Fragment = ""
	return u, nil
}

// framing are the fields of message framing and routing, which a workflow can't set.
var framing = []string{"Host", "Connection", "Content-Length", "Transfer-Encoding", "Trailer", "Te", "Upgrade", "Keep-Alive", "Proxy-Connection", "Proxy-Authorization"}

func (m *message) setHeaders(v any) error {
	values, err := mapping("headers", v)
	if err != nil {
		return err
	}
	for name, v := range values {
		if slices.Contains(framing, http.CanonicalHeaderKey(name)) {
			return invalid("headers.%s can't be set: it follows from the request", name)
		}
		texts, err := texts("headers."+name, v)
		if err != nil {
			return err
		}
		for _, text := range texts {
			m.header.Add(name, text)
		}
	}
	return nil
}

// addQuery adds parameters to the URI's query.
func (m *message) addQuery(v any) error {
	values, err := mapping("query", v)
	if err != nil || len(values) == 0 {
		return err
	}
	query := m.url.Query()
	for name, v := range values {
		texts, err := texts("query."+name, v)
		if err != nil {
			return err
		}
		query[name] = append(query[name], texts...)
	}
	m.url.RawQuery = query.Encode()
	return nil
}

const (
	typeJSON = "application/json"
	typeForm = "application/x-www-form-urlencoded"
	typeText = "text/plain; charset=utf-8"
)

// setBody sets the body: a text as it is, a form where the headers say so, everything else as JSON.
func (m *message) setBody(v any) error {
	kind, _, _ := mime.ParseMediaType(m.header.Get("Content-Type"))
	switch v := v.(type) {
	case nil:
		return nil
	case string:
		if kind != typeJSON {
			m.body = []byte(v)
			m.setType(typeText)
			return nil
		}
	case map[string]any:
		if kind == typeForm {
			return m.setForm(v)
		}
	}
	var err error
	m.body, err = gojq.Marshal(v)
	m.setType(typeJSON)
	return err
}

func (m *message) setForm(values map[string]any) error {
	form := url.Values{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		texts, err := texts("body."+name, values[name])
		if err != nil {
			return err
		}
		form[name] = texts
	}
	m.body = []byte(form.Encode())
	m.setType(typeForm)
	return nil
}

func (m *message) setType(mediaType string) {
	if mediaType != "" && m.header.Get("Content-Type") == "" {
		m.header.Set("Content-Type", mediaType)
	}
}

// request returns the request for net/http.
func (m *message) request(ctx context.Context) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, m.method, m.url.String(), nil)
	if err != nil {
		return nil, invalid("%w", err)
	}
	setDefault(m.header, "User-Agent", "outboard")
	setDefault(m.header, "Accept", "application/json, */*;q=0.5")
	r.Header = m.header.Clone()
	hideIdempotency(r)
	if m.body != nil {
		r.ContentLength = int64(len(m.body))
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(m.body)), nil }
		r.Body, _ = r.GetBody()
	}
	return r, nil
}

// hideIdempotency writes the names of idempotency keys in lower case, by which net/http does not
// recognize them: it would send such a request again, on another connection, after its connection
// broke before the response, and the service may have executed it. Requests of which nothing was
// sent, and those with safe methods, are still sent again.
func hideIdempotency(r *http.Request) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		if values, ok := r.Header[name]; ok {
			delete(r.Header, name)
			r.Header[strings.ToLower(name)] = values
		}
	}
}

func setDefault(h http.Header, name, value string) {
	if h[name] == nil {
		h.Set(name, value)
	}
}

// mapping returns an argument that is a mapping or nothing.
func mapping(subject string, v any) (map[string]any, error) {
	if v == nil {
		return nil, nil //nolint:nilnil // There are none.
	}
	values, ok := v.(map[string]any)
	if !ok {
		return nil, invalid("%s must be a mapping, and it is %s", subject, gojq.TypeOf(v))
	}
	return values, nil
}

// texts returns the texts of a scalar or of a list of scalars. Null has none.
func texts(subject string, v any) ([]string, error) {
	items, ok := v.([]any)
	if !ok {
		items = []any{v}
	}
	var out []string
	for _, item := range items {
		switch item := item.(type) {
		case nil:
		case string:
			out = append(out, item)
		case []any, map[string]any:
			return nil, invalid("%s must be a text, a number or a list of them, and it is %s", subject, gojq.TypeOf(item))
		default:
			text, err := gojq.Marshal(item)
			if err != nil {
				return nil, err
			}
			out = append(out, string(text))
		}
	}
	return out, nil
}

// withoutCredentials returns the fields of a request but for its credentials.
func withoutCredentials(h http.Header) map[string]any {
	out := map[string]any{}
	for name, values := range h {
		if name != "Authorization" && name != "Cookie" {
			out[name] = strings.Join(values, ", ")
		}
	}
	return out
}
