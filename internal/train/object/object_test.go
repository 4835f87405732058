package object

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"github.com/outboard-run/outboard"
)

// The examples "GET Object", "PUT Object" and "GET Bucket (List Objects)" of the Amazon S3 API
// Reference, "Authenticating Requests: Using the Authorization Header".
func TestSignaturesOfTheReference(t *testing.T) {
	c := Credentials{Key: "AKIAIOSFODNN7EXAMPLE", Secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	at := time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
	for want, r := range map[string]struct {
		method, path, body string
		headers            map[string]string
	}{
		"SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41": {
			"GET", "/test.txt", "", map[string]string{"Range": "bytes=0-9"},
		},
		"SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class,Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd": {
			"PUT", "/test$file.text", "Welcome to Amazon S3.",
			map[string]string{"Date": "Fri, 24 May 2013 00:00:00 GMT", "X-Amz-Storage-Class": "REDUCED_REDUNDANCY"},
		},
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date,Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7": {
			"GET", "/?max-keys=2&prefix=J", "", nil,
		},
	} {
		path, query, _ := strings.Cut(r.path, "?")
		request := httptest.NewRequest(r.method, "https://examplebucket.s3.amazonaws.com"+escapePath(path)+"?"+query, nil)
		for name, value := range r.headers {
			request.Header.Set(name, value)
		}
		c.Sign(request, payloadHash([]byte(r.body)), "us-east-1", at)
		if got := request.Header.Get("Authorization"); !strings.HasSuffix(got, want) || !strings.Contains(got, "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request") {
			t.Errorf("%s %s: %s, want %s", r.method, r.path, got, want)
		}
	}
}

// bucketOf returns a bucket of a server that handles requests by f.
func bucketOf(t *testing.T, f http.HandlerFunc) *Bucket {
	t.Helper()
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	o, err := Parse("s3://data/runs?endpoint=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	o.Credentials = Credentials{Key: "key", Secret: "secret", Token: "token"}
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	b.pause = time.Microsecond
	return b
}

// A request that the server could not carry out is made again, one that it refuses is not.
func TestRequestsAreMadeAgain(t *testing.T) {
	for status, c := range map[int]struct {
		requests int
		kind     outboard.Kind
	}{
		http.StatusServiceUnavailable: {attempts, outboard.Unreachable}, http.StatusTooManyRequests: {attempts, outboard.Unreachable},
		http.StatusForbidden: {1, outboard.Denied}, http.StatusBadRequest: {1, outboard.Invalid},
		http.StatusMovedPermanently: {1, outboard.Invalid},
	} {
		requests := 0
		b := bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
			requests++
			w.Header().Set("Location", "http://127.0.0.1:1/")
			w.WriteHeader(status)
		})
		if err := b.Put(context.Background(), "x", []byte("content")); outboard.KindOf(err) != c.kind || requests != c.requests {
			t.Errorf("%d: %v after %d requests, want %v after %d", status, err, requests, c.kind, c.requests)
		}
	}
	requests := 0
	b := bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
		if requests++; requests < 3 {
			w.Header().Set("Content-Length", "100") // It is cut off.
		}
		_, _ = w.Write([]byte("content"))
	})
	if got, err := b.Get(context.Background(), "x", 100); err != nil || string(got) != "content" || requests != 3 {
		t.Errorf("%q, %v after %d requests, want the whole content after 3", got, err, requests)
	}
}

// What may be wrong is said where a server's reply has no text.
func TestRemediesOfRefusals(t *testing.T) {
	for want, c := range map[string]struct {
		header, value string
		status        int
		key           string
	}{
		`set region="eu-west-1"`:        {"X-Amz-Bucket-Region", "eu-west-1", http.StatusBadRequest, "key"},
		"clock differs from the server": {"Date", "Mon, 02 Jan 2006 15:04:05 GMT", http.StatusForbidden, "key"},
		"permit to read":                {"X-Amz-Bucket-Region", defaultRegion, http.StatusForbidden, "key"},
		"had no signature":              {"X-Amz-Bucket-Region", defaultRegion, http.StatusUnauthorized, ""},
		`replies "400 Bad Request"`:     {"X-Amz-Bucket-Region", defaultRegion, http.StatusBadRequest, "key"},
	} {
		b := bucketOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(c.header, c.value)
			w.WriteHeader(c.status)
		})
		b.opts.Credentials.Key = c.key
		if _, err := b.Age(context.Background(), "x"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A hostile server's status and text reach no terminal as control characters, and it can't have
// more kept of an error or an object than is asked for.
func TestHostileServer(t *testing.T) {
	const escape = "\x1b]0;title\a"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan string)
	var serving sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); serving.Wait() })
	serving.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
				_, _ = io.WriteString(conn, <-answers)
			}
			_ = conn.Close()
		}
	})
	o, err := Parse("s3://data/?endpoint=http://" + l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]string{
		"status":      "HTTP/1.1 403 " + escape + "\r\nContent-Length: 0\r\n\r\n",
		"text":        "HTTP/1.1 403 No\r\n\r\n<Error><Code>" + escape + "</Code><Message>" + escape + "</Message></Error>",
		"deep text":   "HTTP/1.1 403 No\r\n\r\n" + strings.Repeat("<Error>", 1<<20),
		"large":       "HTTP/1.1 200 OK\r\n\r\n" + strings.Repeat("x", 1<<20),
		"a false end": "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\n" + strings.Repeat("x", 1<<20),
	} {
		go func() { answers <- answer }()
		content, err := b.Get(t.Context(), "x", 10)
		if err == nil || len(content) > 0 || strings.ContainsAny(err.Error(), "\x1b\a") || len(err.Error()) > 1000 {
			t.Errorf("%s: %d bytes, %q", name, len(content), err)
		}
	}
}

// A server whose list goes on and on without an object does not keep its client for ever.
func TestEndlessEmptyPages(t *testing.T) {
	pages := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if pages++; pages > 2*maxEmptyPages {
			w.WriteHeader(http.StatusNotFound) // the client has not stopped
			return
		}
		fmt.Fprintf(w, "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>%d</NextContinuationToken></ListBucketResult>", pages)
	}))
	defer s.Close()
	o, err := Parse("s3://data/?endpoint=" + s.URL)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	err = b.List(t.Context(), "", func(string, int64, time.Duration) error { return nil })
	if outboard.KindOf(err) != outboard.Protocol || pages != maxEmptyPages {
		t.Errorf("after %d pages: %v", pages, err)
	}
}

func TestBucketsThatAreRefused(t *testing.T) {
	for _, text := range []string{"", "s3://", "http://x/y", "s3://b?endpoint=ftp://x", "s3://b?endpoint=http://u:p@h", "s3://b?key=secret", "s3://u@b/", "s3://b:80/"} {
		if o, err := Parse(text); err == nil {
			t.Errorf("%q: %+v", text, o)
		}
	}
	o, err := Parse("s3://b/x/y?region=eu-west-1")
	if u, _ := o.url(); err != nil || o.Prefix != "x/y/" || u.String() != "https://s3.eu-west-1.amazonaws.com/b" {
		t.Errorf("%+v, %v, %v", o, u, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("s3://bucket/prefix?endpoint=http://127.0.0.1:9000&region=eu")
	f.Fuzz(func(t *testing.T, text string) {
		if o, err := Parse(text); err == nil {
			if _, err := Open(o); err != nil {
				t.Errorf("%q is parsed and not opened: %v", text, err)
			}
		}
	})
}

// FuzzRefusal: whatever a server replies with an error, the error is short and has no control
// characters.
func FuzzRefusal(f *testing.F) {
	f.Add("403 Forbidden", 403, []byte(`<Error><Code>AccessDenied</Code><Message>no</Message></Error>`))
	f.Add("500 \x1b[2J", 500, []byte(`<Error><Code><![CDATA[`))
	f.Add("404", 404, []byte(`<!DOCTYPE a [<!ENTITY b "c">]><Error>&b;</Error>`))
	b, err := Open(Options{Bucket: "data"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status string, code int, text []byte) {
		err := b.refusal("x", &http.Response{Status: status, StatusCode: code, Body: io.NopCloser(bytes.NewReader(text))})
		if err == nil || len(err.Error()) > 4000 || strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("%q", err)
		}
	})
}
