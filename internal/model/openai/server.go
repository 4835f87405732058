package openai

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// Options configure a Server.
type Options struct {
	Models text.Backend
	Log    *slog.Logger
}

// A Server answers requests below /v1.
type Server struct {
	opts Options
	mux  *http.ServeMux
}

// maxBody bounds a request, in bytes.
const maxBody = 16 << 20

// New returns a server.
func New(opts Options) *Server {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: opts, mux: http.NewServeMux()}
	s.mux.HandleFunc("POST /v1/chat/completions", s.handle(s.chat))
	s.mux.HandleFunc("POST /v1/completions", s.handle(s.complete))
	s.mux.HandleFunc("POST /v1/responses", s.handle(s.respond))
	s.mux.HandleFunc("GET /v1/responses/{id...}", s.handle(notStored))
	s.mux.HandleFunc("DELETE /v1/responses/{id}", s.handle(notStored))
	s.mux.HandleFunc("POST /v1/embeddings", s.handle(s.embeddings))
	s.mux.HandleFunc("GET /v1/models", s.handle(s.listModels))
	s.mux.HandleFunc("GET /v1/models/{model...}", s.handle(s.showModel))
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, &apiError{status: http.StatusNotFound, Type: "invalid_request_error", Code: "unknown_url", Message: "Unknown request URL: " + r.Method + " " + r.URL.Path})
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// handle converts a function that answers or returns an error to a handler.
func (s *Server) handle(f func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		if err := f(w, r); err != nil && r.Context().Err() == nil {
			writeError(w, toAPIError(err))
		}
	}
}

// An apiError is an error in OpenAI's form.
type apiError struct {
	status  int
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   any    `json:"param"`
	Code    any    `json:"code"`

	// retryAfter is the time after which the client may try again, 0 if it is not known.
	retryAfter time.Duration
}

func (e *apiError) Error() string { return e.Message }

func writeError(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable {
		// Clients wait as long before they try again, and give up after a few attempts.
		w.Header().Set("Retry-After", strconv.Itoa(int(cmp.Or(e.retryAfter, time.Second).Seconds())))
	}
	writeJSON(w, e.status, map[string]any{"error": e})
}

// Refuse answers a request that may not be served, in the interface's form.
func Refuse(w http.ResponseWriter, err error) { writeError(w, toAPIError(err)) }

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

func invalid(param, message string) *apiError {
	e := &apiError{status: http.StatusBadRequest, Type: "invalid_request_error", Message: message}
	if param != "" {
		e.Param = param
	}
	return e
}

// statuses are the HTTP status, type and code of errors, by their kind.
var statuses = map[outboard.Kind]struct {
	status     int
	name, code string
}{
	outboard.Invalid:     {http.StatusBadRequest, "invalid_request_error", ""},
	outboard.NotFound:    {http.StatusNotFound, "invalid_request_error", "model_not_found"},
	outboard.Denied:      {http.StatusUnauthorized, "authentication_error", "invalid_api_key"},
	outboard.Busy:        {http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded"},
	outboard.Exhausted:   {http.StatusTooManyRequests, "rate_limit_error", "rate_limit_exceeded"},
	outboard.NoDevice:    {http.StatusServiceUnavailable, "server_error", "no_device"},
	outboard.Unreachable: {http.StatusServiceUnavailable, "server_error", "service_unavailable"},
}

func toAPIError(err error) *apiError {
	if own, ok := errors.AsType[*apiError](err); ok {
		return own
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return &apiError{status: http.StatusRequestEntityTooLarge, Type: "invalid_request_error", Message: "the request is larger than 16 MiB"}
	}
	s, ok := statuses[outboard.KindOf(err)]
	if !ok {
		s.status, s.name = http.StatusInternalServerError, "server_error"
	}
	e := &apiError{status: s.status, Type: s.name, Message: err.Error()}
	if s.code != "" {
		e.Code = s.code
	}
	if limit, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](err); ok {
		e.retryAfter = limit.RetryAfter()
	}
	if engine.IsTooLong(err) {
		e.Code = "context_length_exceeded" // by which clients shorten conversations
	}
	if name := engineParam(e.Message); name != "" && s.status == http.StatusBadRequest {
		e.Param = name
	}
	return e
}

// engineParam returns the name of the member that an engine's error is about, "" for none. An error that
// another process or node has returned has the name in its text only.
func engineParam(message string) string {
	if strings.HasPrefix(message, "node ") {
		_, message, _ = strings.Cut(message, ": ")
	}
	if name, _, named := strings.Cut(message, ": "); named && slices.Contains(engineParams, name) {
		return name
	}
	return ""
}

// engineParams are the names by which errors of engines begin that are names of members, too.
//
//nolint:gochecknoglobals // a table
var engineParams = []string{"prompt", "suffix", "stop", "logit_bias", "logprobs", "tools", "grammar", "messages", "ignore_eos"}

// decode reads a request's body.
func decode(r *http.Request, v any) error {
	err := decodeMembers(r.Body, v)
	if own, ok := errors.AsType[*apiError](err); ok {
		return own
	}
	var large *http.MaxBytesError
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil, errors.As(err, &large), outboard.KindOf(err) == outboard.Busy:
		return err
	case errors.As(err, &wrong):
		for _, embedded := range []string{"options.", "sampling."} { // structs
			wrong.Field = strings.TrimPrefix(wrong.Field, embedded)
		}
		return invalid(wrong.Field, "Invalid type for '"+wrong.Field+"': got "+wrong.Value+".")
	default:
		return invalid("", "We could not parse the JSON body of your request: "+err.Error())
	}
}

// open returns the model of a request.
func (s *Server) open(ctx context.Context, name string) (text.Model, func(), error) {
	if name == "" {
		return nil, nil, invalid("model", "you must provide a model parameter")
	}
	m, release, err := s.opts.Models.Open(ctx, name)
	if outboard.KindOf(err) == outboard.NotFound {
		return nil, nil, &apiError{status: http.StatusNotFound, Type: "invalid_request_error", Code: "model_not_found", Message: "The model '" + name + "' does not exist"}
	}
	return m, release, err
}

// identifier returns a random identifier with a prefix.
func identifier(prefix string) string {
	var b [12]byte
	_, _ = rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

type listedModel struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func listed(d text.Description) listedModel {
	return listedModel{d.Name, "model", d.Modified.Unix(), "outboard"}
}

func (s *Server) listModels(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Models.List(r.Context())
	if err != nil {
		return err
	}
	data := []listedModel{}
	for _, d := range all {
		data = append(data, listed(d))
	}
	slices.SortFunc(data, func(a, b listedModel) int { return cmp.Compare(a.ID, b.ID) })
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": data})
	return nil
}

func (s *Server) showModel(w http.ResponseWriter, r *http.Request) error {
	all, err := s.opts.Models.List(r.Context())
	if err != nil {
		return err
	}
	name := r.PathValue("model")
	if d := text.Find(all, name); d != nil {
		found := *d
		found.Name = name
		writeJSON(w, http.StatusOK, listed(found))
		return nil
	}
	return &apiError{status: http.StatusNotFound, Type: "invalid_request_error", Param: "model", Code: "model_not_found", Message: "The model '" + name + "' does not exist"}
}
