package outgoing

import (
	"encoding/base64"
	"encoding/json"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// result returns the output of a call in the format that the arguments ask for.
func (m *message) result(output any, resp *http.Response, body []byte) (Result, error) {
	switch output {
	case "raw":
		return asJSON(base64.StdEncoding.EncodeToString(body))
	case "response":
		return m.wholeResponse(resp, body)
	}
	return content(resp, body)
}

// content returns a body: JSON as it is, a text as a JSON string, everything else as bytes.
func content(resp *http.Response, body []byte) (Result, error) {
	kind := mediaType(resp)
	switch {
	case len(body) == 0:
		return Result{}, nil
	case isJSON(kind):
		if !json.Valid(body) {
			return Result{}, &dsl.Error{Type: dsl.ErrorCommunication, Status: http.StatusBadGateway, Title: "the response is no JSON though it says so", Detail: excerpt(resp, body)}
		}
		return Result{Body: body, Type: typeJSON}, nil
	case isText(kind) && utf8.Valid(body):
		return asJSON(string(body))
	}
	return Result{Body: body, Type: kind}, nil
}

// wholeResponse returns the DSL's HTTP response object.
func (m *message) wholeResponse(resp *http.Response, body []byte) (Result, error) {
	inner, err := content(resp, body)
	if err != nil {
		return Result{}, err
	}
	var value any = json.RawMessage("null")
	switch {
	case len(inner.Body) == 0:
	case inner.Type == typeJSON:
		value = json.RawMessage(inner.Body)
	default:
		value = base64.StdEncoding.EncodeToString(body)
	}
	headers := map[string]any{}
	for name, values := range resp.Header {
		headers[name] = strings.Join(values, ", ")
	}
	return asJSON(map[string]any{
		"request":    map[string]any{"method": m.method, "uri": m.url.String(), "headers": withoutCredentials(m.header)},
		"statusCode": resp.StatusCode, "headers": headers, "content": value,
	})
}

func asJSON(v any) (Result, error) {
	text, err := json.Marshal(v)
	return Result{Body: text, Type: typeJSON}, err
}

func mediaType(resp *http.Response) string {
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return "application/octet-stream"
	}
	return kind
}

func isJSON(kind string) bool { return kind == typeJSON || strings.HasSuffix(kind, "+json") }

func isText(kind string) bool {
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+xml") || kind == "application/xml" || kind == typeForm
}

// excerpt returns the beginning of a body that is text, for errors.
func excerpt(resp *http.Response, body []byte) string {
	const most = 1024
	if kind := mediaType(resp); !isJSON(kind) && !isText(kind) || !utf8.Valid(body) {
		return ""
	}
	if len(body) > most {
		return strings.ToValidUTF8(string(body[:most]), "") + "..."
	}
	return string(body)
}
