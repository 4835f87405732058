package web_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/guesttest"
	"github.com/outboard-run/outboard/guest/go/web"
)

func Example() {
	web.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "hello %s", body)
	}))
	response, err := guest.Call([]byte("harbour")) // as `outboard invoke` does
	fmt.Printf("%s, %v\n", response, err)
	// Output: hello harbour, <nil>
}

// exchange sends a message to the handler.
func exchange(t *testing.T, h http.HandlerFunc, message string) result {
	t.Helper()
	web.Handle(h)
	b, err := guest.Call([]byte(message))
	if err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(message, " ")
	p, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%v: %q", err, b)
	}
	defer p.Body.Close()
	return outcome(t, p)
}

func TestTrailers(t *testing.T) {
	for name, h := range map[string]http.HandlerFunc{
		"announced": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Trailer", "X-Sum, x-rest")
			_, _ = io.WriteString(w, "body")
			w.(http.Flusher).Flush()
			w.Header().Set("X-Sum", "42")
			w.Header().Set("X-Rest", "7")
		},
		"prefixed": func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "body")
			w.Header().Set(http.TrailerPrefix+"X-Sum", "42")
			w.Header().Set(http.TrailerPrefix+"X-Rest", "7")
		},
	} {
		t.Run(name, func(t *testing.T) {
			guesttest.Start(t).Values["http"] = "1"
			web.Handle(h)
			b, err := guest.Call([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
			if err != nil {
				t.Fatal(err)
			}
			p, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
			if err != nil {
				t.Fatalf("%v: %q", err, b)
			}
			defer p.Body.Close()
			body, err := io.ReadAll(p.Body)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(p.Trailer, http.Header{"X-Sum": {"42"}, "X-Rest": {"7"}}); diff != "" || string(body) != "body" || p.Header.Get("X-Sum") != "" {
				t.Errorf("body %q, header %v, trailer: got (-) want (+):\n%s", body, p.Header, diff)
			}
		})
	}
}

// TestRequestTrailers: a request's trailers are there when its body was read to the end, as with net/http.
func TestRequestTrailers(t *testing.T) {
	for name, c := range map[string]struct {
		message, more string
		values        map[string]string
		before, after http.Header
	}{
		"none":        {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", "", map[string]string{"trailers": "X"}, nil, nil},
		"announced":   {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTrailer: x-sum, B\r\n\r\nabc", "", map[string]string{"trailers": "X-Sum", "trailer.X-Sum": "42"}, http.Header{"X-Sum": nil, "B": nil}, http.Header{"X-Sum": {"42"}, "B": nil}},
		"stream":      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n", "abc", map[string]string{"trailers": "X-Sum", "trailer.X-Sum": "42"}, http.Header{"X-Sum": nil}, http.Header{"X-Sum": {"42"}}},
		"unannounced": {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "abc", map[string]string{"trailers": "A, X-Sum", "trailer.X-Sum": "42", "trailer.A": ""}, nil, http.Header{"A": {""}, "X-Sum": {"42"}}},
	} {
		t.Run(name, func(t *testing.T) {
			host := guesttest.Start(t)
			host.Values["http"], host.Rest = "1", strings.NewReader(c.more)
			maps.Copy(host.Values, c.values)
			exchange(t, func(w http.ResponseWriter, r *http.Request) {
				before := r.Trailer.Clone()
				body, err := io.ReadAll(r.Body)
				if string(body) != "abc" || err != nil || r.Header["Trailer"] != nil {
					t.Errorf("body %q (%v), header %v", body, err, r.Header)
				}
				if diff := cmp.Diff([]http.Header{before, r.Trailer}, []http.Header{c.before, c.after}); diff != "" {
					t.Errorf("before and after the body: got (-) want (+):\n%s", diff)
				}
			}, c.message)
		})
	}
}

// FuzzDetectType compares the types of bodies with those of net/http.
func FuzzDetectType(f *testing.F) {
	for _, s := range []string{
		"", "hello", "<html>", " <html>", "{}", "%PDF-", "GIF89a", "\x89PNG\r\n\x1a\n", "PK\x03\x04", "wOFF", "true", "OTTO", "\x00\x00\x00\x0cftypmp4 ", "abcdftypmp41",
		"123456789012345678901234567890abcdLP", "a\x00b", "a\x7fb", "\xef\xbb\xbfa", "a\x1bb", strings.Repeat("a", 511) + "\n\x00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if got, want := web.DetectType(body), http.DetectContentType(body); got != want {
			t.Errorf("%q: got %s, want %s", body, got, want)
		}
	})
}

// FuzzParseTarget compares targets with what net/url makes of them.
func FuzzParseTarget(f *testing.F) {
	for _, s := range []string{"/", "/a/b", "/a?b=c", "/a?", "//a/b", "/a%20b", "/a b", "/a?b#c", "/a#b", "*", "", "a", "http://a/b", "http://u@a/b", "/a;b", "/ä", "/a?ä", "/a?b?c", "/.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		got, err := web.ParseTarget(target)
		want, wantErr := url.ParseRequestURI(target)
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v, want %v", target, err, wantErr)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, want %#v", target, got, want)
		}
	})
}

// seen is what handlers look at.
type seen struct {
	Method, Path, Query, Host, Proto, URI, Body string
	Length                                      int64
	Header                                      http.Header
}

func look(r *http.Request) seen {
	body, _ := io.ReadAll(r.Body)
	return seen{r.Method, r.URL.Path, r.URL.RawQuery, r.Host, r.Proto, r.RequestURI, string(body), r.ContentLength, r.Header}
}

// TestRequests compares with what net/http reads.
func TestRequests(t *testing.T) {
	for name, message := range map[string]string{
		"get":     "GET /cart/7?a=1&b=%20 HTTP/1.1\r\nHost: shop.example\r\nAccept: */*\r\n\r\n",
		"post":    "POST /cart HTTP/1.1\r\nHost: shop.example\r\ncontent-type:  text/plain \r\nContent-Length: 5\r\n\r\nhello",
		"repeats": "GET / HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nX-B: 2\r\nx-a: 3\r\nX-A: 4\r\n\r\n",
		"lines":   "GET / HTTP/1.1\nHost: a\nX-A: 1\n\n",
		"bare":    "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n",
		"breaks":  "PUT /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\na\r\n\r\nb\r\n\r\n",
		// Names with one length, first and last letter, which readHeader tells apart by a search only.
		"alike":     "GET / HTTP/1.1\r\nHost: a\r\nX-Aa-Z: 1\r\nX-Bb-Z: 2\r\nX-Aa-Z: 3\r\nX-Cc-Z: 4\r\nX-Bb-Z: 5\r\n\r\n",
		"known":     "GET / HTTP/1.1\r\nHost: a\r\nuser-agent: 1\r\nUser-Agent: 2\r\nCookie: a=1\r\nCookie: b=2\r\n\r\n",
		"long":      "GET / HTTP/1.1\r\nHost: a\r\nX-A: " + strings.Repeat("x", 1000) + "\r\nX-B: 2\r\n\r\n",
		"long body": "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + strings.Repeat("\r\n\r\n", 500),
		"many":      "GET / HTTP/1.1\r\nHost: a\r\n" + strings.Repeat("X-A: 1\r\nX-B: 2\r\n", 20) + "\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			guesttest.Start(t).Values["http"] = "1"
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(message)))
			if err != nil {
				t.Fatal(err)
			}
			var got seen
			exchange(t, func(_ http.ResponseWriter, r *http.Request) { got = look(r) }, message)
			want := look(r)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLengths: with the lengths of the head's parts a request is read as without.
func TestLengths(t *testing.T) {
	head := []string{
		"GET /cart/7?a=1 HTTP/1.1", "Host: shop.example", "X-Forwarded-Prefix: /shop", "Accept: */*", "X-Empty: ",
		"X-A: " + strings.Repeat("x: ", 200), "X-A: 2", "Content-Length:          5",
	}
	message := strings.Join(head, "\r\n") + "\r\n\r\nhello"
	for name, lengths := range map[string]string{"none": "", "all": "\n" + lengthsOf(head), "of the first lines": "\n" + lengthsOf(head[:3])} {
		t.Run(name, func(t *testing.T) {
			guesttest.Start(t).Values = map[string]string{"http.route": "/cart/{id}\n7" + lengths}
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(message)))
			if err != nil {
				t.Fatal(err)
			}
			var got seen
			var id string
			exchange(t, func(_ http.ResponseWriter, r *http.Request) { got, id = look(r), r.PathValue("id") }, message)
			if diff := cmp.Diff(look(r), got); diff != "" || id != "7" {
				t.Errorf("parameter %q, (-want +got):\n%s", id, diff)
			}
		})
	}
}

// lengthsOf returns the lengths of the parts of a head as the gateway sends them.
func lengthsOf(head []string) string {
	var b []byte
	for i, line := range head {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		if i == 0 {
			name, value, _ = strings.Cut(strings.TrimSuffix(line, " HTTP/1.1"), " ")
		}
		b = append(b, byte(len(name)), byte(len(value)>>8), byte(len(value)))
	}
	return string(b)
}

// TestIncomplete: a head without its empty line is no request, whatever its length.
func TestIncomplete(t *testing.T) {
	for _, field := range []string{"", "X-A: 1\r\n", "X-A: " + strings.Repeat("x", 1000) + "\r\n"} {
		guesttest.Start(t).Values["http"] = "1"
		web.Handle(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the handler was called") }))
		if _, err := guest.Call([]byte("GET / HTTP/1.1\r\nHost: a\r\n" + field)); err == nil {
			t.Errorf("a message of %d bytes without an end was accepted", len(field))
		}
	}
}

// TestPathValues gets the route and its parameters one by one, as from a node that does not have
// them as one value, and as one value.
func TestPathValues(t *testing.T) {
	for name, values := range map[string]map[string]string{
		"one by one": {"http": "1", "route": "/cart/{id}/{rest...}", "id": "7", "rest": "a/b"},
		"at once":    {"http.route": "/cart/{id}/{rest...}\n7\na/b"},
	} {
		t.Run(name, func(t *testing.T) {
			guesttest.Start(t).Values = values
			exchange(t, func(_ http.ResponseWriter, r *http.Request) {
				if r.PathValue("id") != "7" || r.PathValue("rest") != "a/b" || r.Pattern != "/cart/{id}/{rest...}" {
					t.Errorf("got %q, %q, %q", r.PathValue("id"), r.PathValue("rest"), r.Pattern)
				}
			}, "GET /cart/7/a/b HTTP/1.1\r\nHost: a\r\n\r\n")
		})
	}
	guesttest.Start(t).Values = map[string]string{"http.route": "GET /shop/{$}"}
	exchange(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Pattern != "GET /shop/{$}" || r.PathValue("$") != "" {
			t.Errorf("got %q, %q", r.Pattern, r.PathValue("$"))
		}
	}, "GET /shop/ HTTP/1.1\r\nHost: a\r\n\r\n")
}

// TestResponses compares with what net/http's server answers.
func TestResponses(t *testing.T) {
	tests := map[string]http.HandlerFunc{
		"nothing": func(http.ResponseWriter, *http.Request) {},
		"text":    func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") },
		"sniffed": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"typed": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			fmt.Fprint(w, "{}")
		},
		"header too late": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-A", "1")
			fmt.Fprint(w, "a")
			w.Header().Set("X-A", "2")
		},
		"error":    func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/b", http.StatusFound) },
		"no body":  func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		"cookies":  func(w http.ResponseWriter, _ *http.Request) { http.SetCookie(w, &http.Cookie{Name: "a", Value: "b"}) },
		"encoded": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "x")
		},
		"split": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-A", "1\r\nX-B: 2") },
		"content": func(w http.ResponseWriter, r *http.Request) {
			http.ServeContent(w, r, "a.txt", time.Time{}, strings.NewReader("hello"))
		},
		"by string": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") },
	}
	for name, h := range tests {
		for _, method := range []string{"GET", "HEAD"} {
			t.Run(name+" "+method, func(t *testing.T) {
				guesttest.Start(t).Values["http"] = "1"
				server := httptest.NewServer(h)
				defer server.Close()
				request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/a", nil)
				if err != nil {
					t.Fatal(err)
				}
				wanted, err := http.DefaultTransport.RoundTrip(request)
				if err != nil {
					t.Fatal(err)
				}
				defer wanted.Body.Close()
				got := exchange(t, h, method+" /a HTTP/1.1\r\nHost: a\r\n\r\n")
				if diff := cmp.Diff(outcome(t, wanted), got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
	}
}

type result struct {
	Status, Body string
	Header       http.Header
}

func outcome(t *testing.T, p *http.Response) result {
	t.Helper()
	body, err := io.ReadAll(p.Body)
	if err != nil {
		t.Error(err)
	}
	p.Header.Del("Date") // the host's
	return result{p.Status, string(body), p.Header}
}

// A handler with a status that HTTP/1.1 can't carry fails, as it does beside net/http.
func TestImpossibleStatus(t *testing.T) {
	for _, status := range []int{-1, 0, 99, 1000} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			guesttest.Start(t).Values["http"] = "1"
			web.Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			defer func() {
				if recover() == nil {
					t.Error("the handler did not panic")
				}
			}()
			_, _ = guest.Call([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
		})
	}
}

func TestStatusTwice(t *testing.T) {
	guesttest.Start(t).Values["http"] = "1"
	p := exchange(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusTeapot)
		w.WriteHeader(http.StatusOK)
	}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if p.Status != "418 I'm a teapot" {
		t.Errorf("got %s", p.Status)
	}
}

func TestForbiddenBody(t *testing.T) {
	guesttest.Start(t).Values["http"] = "1"
	exchange(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
		if _, err := w.Write([]byte("a")); !errors.Is(err, http.ErrBodyNotAllowed) {
			t.Errorf("got %v", err)
		}
	}, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
}

func TestPlainError(t *testing.T) {
	guesttest.Start(t)
	web.Handle(http.NotFoundHandler())
	if _, err := guest.Call([]byte("a")); err == nil || err.Error() != "404 Not Found: 404 page not found\n" {
		t.Errorf("got %v", err)
	}
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"))
	f.Add([]byte("POST /a?b=c HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"))
	f.Add([]byte("GET /\r\n\r\n"))
	f.Add([]byte("GET / HTTP/1.1\nno colon\n\n"))
	f.Fuzz(func(t *testing.T, message []byte) {
		guesttest.Start(t).Values["http"] = "1"
		var got *http.Request
		web.Handle(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r }))
		_, err := guest.Call(message)
		if (err == nil) != (got != nil) {
			t.Errorf("%v, and the handler ran: %v", err, got != nil)
		}
		if got != nil && (got.URL == nil || got.Header == nil || got.Body == nil) {
			t.Errorf("got %+v", got)
		}
	})
}

// BenchmarkRequest is what a request costs beside its handler.
func BenchmarkRequest(b *testing.B) {
	guesttest.Start(b).Values["http"] = "1"
	message := []byte("GET /cart/7?a=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: curl/8\r\nAccept: */*\r\nX-Request-Id: 7\r\n\r\n")
	web.Handle(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := guest.Call(message); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStandard is the same with http.ReadRequest.
func BenchmarkStandard(b *testing.B) {
	message := []byte("GET /cart/7?a=1 HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: curl/8\r\nAccept: */*\r\nX-Request-Id: 7\r\n\r\n")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(message))); err != nil {
			b.Fatal(err)
		}
	}
}

// A body that follows the message is read as a stream, and a large response leaves in parts before the
// handler returns.
func TestStreams(t *testing.T) {
	host := guesttest.Start(t)
	host.Values["http"] = "1"
	for name, test := range map[string]struct{ framing, more, want string }{
		"announced": {"Content-Length: 8", "five", "8 two five"},
		"chunked":   {"Transfer-Encoding: chunked", "five", "-1 two five"},
		"whole":     {"Content-Length: 4", "not of it", "4 two "},
	} {
		t.Run(name, func(t *testing.T) {
			web.Handle(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				b, err := io.ReadAll(r.Body)
				fmt.Fprint(w, r.ContentLength, " ", string(b))
				if err != nil || http.NewResponseController(w).Flush() != nil {
					t.Error(err)
				}
				fmt.Fprint(w, strings.Repeat("x", 100_000))
			}))
			host.Rest = strings.NewReader(test.more)
			message := "POST / HTTP/1.1\r\nHost: x\r\n" + test.framing + "\r\n\r\ntwo "
			b, err := guest.Call([]byte(message))
			resp, readErr := http.ReadResponse(bufio.NewReader(bytes.NewReader(b)), nil)
			if err != nil || readErr != nil {
				t.Fatal(err, readErr)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if want := test.want + strings.Repeat("x", 100_000); err != nil || string(body) != want || resp.Header.Get("Content-Length") != "" {
				t.Errorf("%.30q, %d bytes, %v", body, len(body), err)
			}
		})
	}
}
