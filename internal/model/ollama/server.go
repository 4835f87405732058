package ollama

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/text"
)

// Options configure a Server.
type Options struct {
	Models text.Backend
	// Keep determines how long a model stays loaded after its last use: 0 unloads it, a negative
	// duration keeps it.
	Keep func(ctx context.Context, name string, idle time.Duration) error
	// Version is reported to clients, some of which require one.
	Version string
	Log     *slog.Logger
}

// A Server answers requests below /api, and those by which clients look for a server at the root.
type Server struct {
	opts Options
	mux  *http.ServeMux
}

// defaultVersion is the version of Ollama whose interface is served.
const defaultVersion = "0.17.4"

// maxBody bounds a request, in bytes.
const maxBody = 16 << 20

// New returns a server.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.Keep == nil {
		opts.Keep = func(context.Context, string, time.Duration) error { return nil }
	}
	opts.Version = cmp.Or(opts.Version, defaultVersion)
	s := &Server{opts: opts, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /api/chat", s.handle(s.chat))
	s.mux.HandleFunc("POST /api/generate", s.handle(s.generate))
	s.mux.HandleFunc("POST /api/embed", s.handle(s.embed))
	s.mux.HandleFunc("POST /api/embeddings", s.handle(s.embedOne))
	s.mux.HandleFunc("GET /api/tags", s.handle(s.tags))
	s.mux.HandleFunc("POST /api/show", s.handle(s.show))
	s.mux.HandleFunc("GET /api/ps", s.handle(s.running))
	s.mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"version": s.opts.Version})
	})
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "Ollama is running") // the client may have disconnected
	})
	for _, path := range []string{"pull", "push", "create", "copy", "delete"} {
		s.mux.HandleFunc("/api/"+path, func(w http.ResponseWriter, _ *http.Request) {
			writeJSON(w, http.StatusNotImplemented, map[string]string{"error": "models of the pool are managed with `outboard models`"})
		})
	}
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := f(w, r); err != nil && r.Context().Err() == nil {
			writeJSON(w, statusOf(err), map[string]string{"error": err.Error()})
		}
	}
}

// statuses are the HTTP statuses of errors, by their kind.
var statuses = map[outboard.Kind]int{
	outboard.Invalid: http.StatusBadRequest, outboard.NotFound: http.StatusNotFound, outboard.Denied: http.StatusUnauthorized,
	outboard.Busy: http.StatusServiceUnavailable, outboard.Exhausted: http.StatusServiceUnavailable,
	outboard.Unreachable: http.StatusServiceUnavailable, outboard.NoDevice: http.StatusServiceUnavailable,
}

func statusOf(err error) int {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return http.StatusRequestEntityTooLarge
	}
	return cmp.Or(statuses[outboard.KindOf(err)], http.StatusInternalServerError)
}

// Refuse answers a request that may not be served, in the interface's form.
func Refuse(w http.ResponseWriter, err error) {
	writeJSON(w, statusOf(err), map[string]string{"error": err.Error()})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

func decode(r *http.Request, v any) error {
	err := json.NewDecoder(r.Body).Decode(v)
	var large *http.MaxBytesError
	if err == nil || errors.As(err, &large) || outboard.KindOf(err) == outboard.Busy {
		return err
	}
	return invalid("%w", err)
}

func invalid(format string, args ...any) error {
	return outboard.Errorf(outboard.Invalid, "", format, args...)
}

// modelName removes the tag that Ollama's clients add.
func modelName(name string) string { return strings.TrimSuffix(name, ":latest") }

// open returns the model of a request.
func (s *Server) open(r *http.Request, name string) (text.Model, func(), error) {
	if name == "" {
		return nil, nil, invalid("model is required")
	}
	m, release, err := s.opts.Models.Open(r.Context(), modelName(name))
	return m, release, notFound(name, err)
}

// notFound returns the error of a call, with Ollama's words if there is no such model.
func notFound(name string, err error) error {
	if outboard.KindOf(err) == outboard.NotFound {
		return outboard.Errorf(outboard.NotFound, "", "model '%s' not found", name)
	}
	return err
}

type details struct {
	ParentModel       string   `json:"parent_model"`
	Format            string   `json:"format"`
	Family            string   `json:"family"`
	Families          []string `json:"families"`
	ParameterSize     string   `json:"parameter_size"`
	QuantizationLevel string   `json:"quantization_level"`
}

func detailsOf(d text.Description) details {
	return details{Format: "gguf", Family: d.Architecture, Families: []string{d.Architecture}, ParameterSize: size(d.Parameters), QuantizationLevel: d.Quantization}
}

// size formats a number of weights as Ollama does: "8.0B".
func size(n uint64) string {
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.2fM", float64(n)/1e6)
	default:
		return fmt.Sprintf("%.1fK", float64(n)/1e3)
	}
}

type listed struct {
	Name       string    `json:"name"`
	Model      string    `json:"model"`
	ModifiedAt time.Time `json:"modified_at"`
	Size       int64     `json:"size"`
	Digest     string    `json:"digest"`
	Details    details   `json:"details"`
}

func (s *Server) tags(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Models.List(r.Context())
	if err != nil {
		return err
	}
	models := []listed{}
	for _, d := range all {
		models = append(models, listed{d.Name + ":latest", d.Name + ":latest", d.Modified, d.Size, d.Digest, detailsOf(d)})
	}
	slices.SortFunc(models, func(a, b listed) int { return cmp.Compare(a.Name, b.Name) })
	writeJSON(w, http.StatusOK, map[string]any{"models": models})
	return nil
}

func (s *Server) running(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Models.List(r.Context())
	if err != nil {
		return err
	}
	models := []map[string]any{}
	for _, d := range all {
		if d.Loaded {
			models = append(models, map[string]any{
				"name": d.Name + ":latest", "model": d.Name + ":latest", "size": d.Memory, "digest": d.Digest, "details": detailsOf(d),
				// Outboard unloads unused models, but promises no time.
				"expires_at": time.Now().Add(time.Hour), "size_vram": 0, "context_length": d.Context,
			})
		}
	}
	writeJSON(w, http.StatusOK, map[string]any{"models": models})
	return nil
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) error {
	var q struct {
		Model string `json:"model"`
		Name  string `json:"name"`
	}
	if err := decode(r, &q); err != nil {
		return err
	}
	name := cmp.Or(q.Model, q.Name)
	all, err := s.opts.Models.List(r.Context())
	if err != nil {
		return err
	}
	d := text.Find(all, modelName(name))
	if d == nil {
		return outboard.Errorf(outboard.NotFound, "", "model '%s' not found", name)
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"modelfile": "", "parameters": "", "template": d.ChatTemplate, "details": detailsOf(*d), "modified_at": d.Modified,
		"model_info": map[string]any{
			"general.architecture": d.Architecture, "general.parameter_count": d.Parameters, d.Architecture + ".context_length": d.Context,
		},
		"capabilities": capabilities(d.ChatTemplate),
	})
	return nil
}

// capabilities returns what requests may demand of a model with a chat template.
func capabilities(template string) []string {
	list := []string{"completion"}
	if text.ReadsTools(template) {
		list = append(list, "tools")
	}
	if text.Thinks(template) {
		list = append(list, "thinking")
	}
	return list
}
