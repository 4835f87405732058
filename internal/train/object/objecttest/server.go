// Package objecttest serves a bucket of S3 from memory, for tests and benchmarks of code that uses
// a bucket.
package objecttest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/train/object"
)

// maxObject bounds an object in bytes.
const maxObject = 1 << 30

// A Server serves GET, HEAD, PUT and DELETE of whole objects, and lists of them. It refuses requests
// without the signature of its credentials, and contents other than the signed ones.
type Server struct {
	credentials object.Credentials

	mu      sync.Mutex
	objects map[string][]byte
	written map[string]time.Time
	gets    map[string]int
}

// New returns a server without objects. Zero credentials accept every request.
func New(c object.Credentials) *Server {
	return &Server{credentials: c, objects: make(map[string][]byte), written: make(map[string]time.Time), gets: make(map[string]int)}
}

// Names returns the paths of the objects, "/BUCKET/NAME", sorted.
func (s *Server) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.objects))
}

// Gets returns how often an object was read.
func (s *Server) Gets(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gets[path]
}

// Put writes an object.
func (s *Server) Put(path string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path], s.written[path] = content, time.Now()
}

// Backdate makes all objects look as if they had been written earlier by d.
func (s *Server) Backdate(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for path, at := range s.written {
		s.written[path] = at.Add(-d)
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		refuse(w, http.StatusBadRequest, "EntityTooLarge")
		return
	}
	if !s.allows(r, body) {
		refuse(w, http.StatusForbidden, "SignatureDoesNotMatch")
		return
	}
	switch r.Method {
	case http.MethodPut:
		s.Put(r.URL.Path, body)
	case http.MethodDelete:
		s.remove(r.URL.Path)
		w.WriteHeader(http.StatusNoContent)
	case http.MethodGet, http.MethodHead:
		if r.URL.Query().Get("list-type") == "2" {
			s.list(w, r)
			return
		}
		s.send(w, r)
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// readBody returns the body of a request whose length is known.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > maxObject {
		return nil, errors.New("no length, or too much")
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// allows reports whether a request has the signature that its credentials give it.
func (s *Server) allows(r *http.Request, body []byte) bool {
	if s.credentials.Key == "" {
		return true
	}
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	scope := strings.Split(r.Header.Get("Authorization"), "/")
	if err != nil || len(scope) < 5 {
		return false
	}
	again := r.Clone(r.Context())
	again.URL.Host, again.Header = r.Host, http.Header{}
	hash := sha256.Sum256(body)
	s.credentials.Sign(again, hex.EncodeToString(hash[:]), scope[2], at)
	return again.Header.Get("Authorization") == r.Header.Get("Authorization")
}

func (s *Server) send(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	content, ok := s.objects[r.URL.Path]
	at := s.written[r.URL.Path]
	if r.Method == http.MethodGet {
		s.gets[r.URL.Path]++
	}
	s.mu.Unlock()
	if !ok {
		refuse(w, http.StatusNotFound, "NoSuchKey")
		return
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(content)))
	w.Header().Set("Last-Modified", at.UTC().Format(http.TimeFormat))
	_, _ = w.Write(content) // A disconnected client needs no answer.
}

// page is the number of objects of a page of a list: few, so that tests have several pages.
const page = 3

// list answers ListObjectsV2. The token of the next page is the last key of the page before.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	type content struct {
		Key          string
		Size         int
		LastModified time.Time
	}
	var result struct {
		XMLName               xml.Name `xml:"ListBucketResult"`
		IsTruncated           bool
		NextContinuationToken string
		Contents              []content
	}
	query, bucket := r.URL.Query(), r.URL.Path+"/"
	s.mu.Lock()
	for _, path := range slices.Sorted(maps.Keys(s.objects)) {
		key, ok := strings.CutPrefix(path, bucket)
		if !ok || !strings.HasPrefix(key, query.Get("prefix")) || key <= query.Get("continuation-token") {
			continue
		}
		if result.IsTruncated = len(result.Contents) == page; result.IsTruncated {
			result.NextContinuationToken = result.Contents[page-1].Key
			break
		}
		result.Contents = append(result.Contents, content{key, len(s.objects[path]), s.written[path].UTC()})
	}
	s.mu.Unlock()
	_ = xml.NewEncoder(w).Encode(result) // A disconnected client needs no answer.
}

func (s *Server) remove(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, path)
}

// refuse answers with a code of the S3 API.
func refuse(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>refused</Message></Error>", code)
}
