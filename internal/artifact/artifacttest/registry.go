// Package artifacttest serves a registry of OCI artifacts from memory, for tests.
package artifacttest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// MaxBlob bounds the body of one request, in bytes.
const MaxBlob = 64 << 20

// A Registry is an http.Handler that implements the part of the OCI Distribution Specification 1.1
// that clients need: pushing a blob in one request or two, pulling, tags. Its zero value is an
// empty registry. Requests may run at the same time.
type Registry struct {
	mu           sync.Mutex
	repositories map[string]*repository
}

// A repository has the blobs and the manifests of one name.
type repository struct {
	blobs     map[string][]byte // by digest
	manifests map[string]manifest
	tags      map[string]string // digest by tag
}

type manifest struct {
	mediaType string
	body      []byte
}

var (
	name   = `/v2/([a-z0-9]+(?:[._/-][a-z0-9]+)*)`
	routes = map[string]*regexp.Regexp{
		"upload":   regexp.MustCompile(`^` + name + `/blobs/uploads/([a-z]*)$`),
		"blob":     regexp.MustCompile(`^` + name + `/blobs/(sha256:[0-9a-f]{64})$`),
		"manifest": regexp.MustCompile(`^` + name + `/manifests/([^/]+)$`),
		"tags":     regexp.MustCompile(`^` + name + `/tags/(list)$`),
	}
)

func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, q.Body, MaxBlob))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "SIZE_INVALID")
		return
	}
	if q.URL.Path == "/v2/" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for kind, route := range routes {
		if m := route.FindStringSubmatch(q.URL.Path); m != nil {
			r.repository(m[1]).serve(w, q, kind, m[1], m[2], body)
			return
		}
	}
	refuse(w, http.StatusNotFound, "UNSUPPORTED")
}

func (r *Registry) repository(name string) *repository {
	if r.repositories == nil {
		r.repositories = map[string]*repository{}
	}
	if r.repositories[name] == nil {
		r.repositories[name] = &repository{blobs: map[string][]byte{}, manifests: map[string]manifest{}, tags: map[string]string{}}
	}
	return r.repositories[name]
}

func (r *repository) serve(w http.ResponseWriter, q *http.Request, kind, name, ref string, body []byte) {
	read := q.Method == http.MethodGet || q.Method == http.MethodHead
	switch {
	case kind == "upload" && q.Method == http.MethodPost && !q.URL.Query().Has("digest"):
		w.Header().Set("Location", "/v2/"+name+"/blobs/uploads/next")
		w.WriteHeader(http.StatusAccepted)
	case kind == "upload" && (q.Method == http.MethodPut || q.Method == http.MethodPost):
		r.putBlob(w, name, q.URL.Query().Get("digest"), body)
	case kind == "blob" && read:
		blob, ok := r.blobs[ref]
		write(w, ok, "BLOB_UNKNOWN", manifest{"application/octet-stream", blob})
	case kind == "manifest" && q.Method == http.MethodPut:
		r.putManifest(w, name, ref, manifest{q.Header.Get("Content-Type"), body})
	case kind == "manifest" && read:
		if d, ok := r.tags[ref]; ok {
			ref = d
		}
		m, ok := r.manifests[ref]
		write(w, ok, "MANIFEST_UNKNOWN", m)
	case kind == "tags" && read:
		_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "tags": slices.Sorted(maps.Keys(r.tags))})
	default:
		refuse(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
	}
}

func (r *repository) putBlob(w http.ResponseWriter, name, want string, body []byte) {
	if digestOf(body) != want {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID")
		return
	}
	r.blobs[want] = body
	w.Header().Set("Location", "/v2/"+name+"/blobs/"+want)
	w.WriteHeader(http.StatusCreated)
}

func (r *repository) putManifest(w http.ResponseWriter, name, ref string, m manifest) {
	d := digestOf(m.body)
	if strings.Contains(ref, ":") && ref != d {
		refuse(w, http.StatusBadRequest, "DIGEST_INVALID")
		return
	}
	r.manifests[d] = m
	if ref != d {
		r.tags[ref] = d
	}
	w.Header().Set("Location", "/v2/"+name+"/manifests/"+d)
	w.Header().Set("Docker-Content-Digest", d)
	w.WriteHeader(http.StatusCreated)
}

func write(w http.ResponseWriter, ok bool, code string, m manifest) {
	if !ok {
		refuse(w, http.StatusNotFound, code)
		return
	}
	w.Header().Set("Content-Type", m.mediaType)
	w.Header().Set("Docker-Content-Digest", digestOf(m.body))
	w.Header().Set("Content-Length", fmt.Sprint(len(m.body)))
	_, _ = w.Write(m.body) // net/http leaves it out for HEAD
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": code}}})
}

func digestOf(body []byte) string {
	sum := sha256.Sum256(body)
	return "sha256:" + hex.EncodeToString(sum[:])
}
