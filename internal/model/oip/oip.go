package oip

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/buffers"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// Models are the operations on a node's models that the protocol needs; serve.Server implements it.
type Models interface {
	Infer(ctx context.Context, r *serve.Request) (*serve.Response, error)
	// Refuse returns the error with which Infer would refuse a request at present, before its
	// tensors are received. rows is the first dimension of the inputs, 0 if only the model is known.
	Refuse(r *serve.Request, rows int) error
	Describe(ctx context.Context, name, version string) (*serve.Description, error)
	Ready(name, version string) (bool, error)
	Index() []serve.Index
	Stats() []serve.ModelStats
	Load(ctx context.Context, name, version string) error
	Unload(name string) error
	OpenText(ctx context.Context, name, version string, prompt serve.Prompt, exclude ...outboard.NodeID) (*serve.Text, func(), error)
}

// Options configure a Handler.
type Options struct {
	Models Models
	// Version is the version of this program.
	Version string
	// MaxBody bounds a request in bytes; 0 means 256 MiB.
	MaxBody int64
	// StreamBytes bounds the requests and responses in flight of all ModelStreamInfer calls, in
	// bytes; 0 means 1 GiB.
	StreamBytes int64
	// SharedMemory lets clients register system shared memory. It is off by default, since a client
	// can then name any region of /dev/shm that the node may open.
	SharedMemory bool
	// Allow returns an error unless the client of a request may use a model; nil allows all models.
	Allow func(ctx context.Context, model string) error
	// Administer returns an error unless the client of a request may load and unload models; nil
	// allows all clients.
	Administer func(ctx context.Context) error
	// Readmit returns an error unless the client of a stream of requests may send another one; nil
	// admits all. An error of the kind outboard.Denied ends the stream.
	Readmit func(ctx context.Context) error
	// Owner names the client of a request by its API key: a region of shared memory belongs to the
	// client that has registered it. If Owner is nil or returns "", the client is the user on this
	// machine.
	Owner func(ctx context.Context) string
	// Reserve counts memory that a request takes beside its body for its client, in bytes, until
	// release is called; nil counts nothing.
	Reserve func(ctx context.Context, n int64) (release func(), err error)
	// CacheScope returns the scope of a request's generations (engine.Generation); if it is nil,
	// all requests have the same scope.
	CacheScope func(ctx context.Context) string
	// Count counts the tokens of a generation for the client of its request; nil counts nothing.
	Count func(ctx context.Context, prompt, generated int)
	Log   *slog.Logger
}

// A Handler serves REST on /v2, and gRPC on the servers to which RegisterGRPC adds it.
type Handler struct {
	opts    Options
	mux     *http.ServeMux
	regions *regions

	streamed streamBytes  // of all ModelStreamInfer calls
	tensors  buffers.Pool // of binary tensors
}

// New returns a Handler.
func New(opts Options) *Handler {
	if opts.MaxBody == 0 {
		opts.MaxBody = 256 << 20
	}
	if opts.Allow == nil {
		opts.Allow = func(context.Context, string) error { return nil }
	}
	if opts.Administer == nil {
		opts.Administer = func(context.Context) error { return nil }
	}
	if opts.Readmit == nil {
		opts.Readmit = func(context.Context) error { return nil }
	}
	if opts.Owner == nil {
		opts.Owner = noOwner
	}
	if opts.CacheScope == nil {
		opts.CacheScope = noOwner
	}
	if opts.Count == nil {
		opts.Count = func(context.Context, int, int) {}
	}
	if opts.Reserve == nil {
		opts.Reserve = func(context.Context, int64) (func(), error) { return func() {}, nil }
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	h := &Handler{
		opts: opts, mux: http.NewServeMux(), regions: newRegions(opts.SharedMemory, opts.Owner),
		streamed: streamBytes{limit: cmp.Or(opts.StreamBytes, maxStreamBytes)},
	}
	h.routes()
	return h
}

func noOwner(context.Context) string { return "" }

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.regions.enabled {
		r = withRemote(r)
	}
	h.mux.ServeHTTP(w, r)
}

// extensions returns the extensions of the protocol that are served.
func (h *Handler) extensions() []string {
	list := []string{
		"classification", "binary_tensor_data", "model_repository", "model_configuration", "schedule_policy", "sequence", "statistics", "parameters", "generate",
	}
	if h.opts.SharedMemory {
		list = append(list, "system_shared_memory")
	}
	return list
}

func (h *Handler) routes() {
	h.mux.HandleFunc("GET /v2", h.server)
	h.mux.HandleFunc("GET /v2/{$}", h.server)
	h.mux.HandleFunc("GET /v2/health/live", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"live": true})
	})
	h.mux.HandleFunc("GET /v2/health/ready", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]bool{"ready": true})
	})
	for _, at := range []string{"/v2/models/{model}", "/v2/models/{model}/versions/{version}"} {
		h.mux.HandleFunc("GET "+at, h.ofModel(h.metadata))
		h.mux.HandleFunc("GET "+at+"/ready", h.ofModel(h.ready))
		h.mux.HandleFunc("GET "+at+"/config", h.ofModel(h.config))
		h.mux.HandleFunc("GET "+at+"/stats", h.ofModel(h.stats))
		h.mux.HandleFunc("POST "+at+"/infer", h.ofModel(h.infer))
		h.mux.HandleFunc("POST "+at+"/generate", h.ofModel(h.generate))
		h.mux.HandleFunc("POST "+at+"/generate_stream", h.ofModel(h.generateStream))
	}
	h.mux.HandleFunc("GET /v2/models/stats", h.stats)
	h.mux.HandleFunc("POST /v2/repository/index", h.index)
	h.mux.HandleFunc("POST /v2/repository/models/{model}/load", h.ofModel(h.load))
	h.mux.HandleFunc("POST /v2/repository/models/{model}/unload", h.ofModel(h.unload))
	h.sharedMemoryRoutes()
	h.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, outboard.Errorf(outboard.NotFound, "", "%s %s: the Open Inference Protocol has no such route", r.Method, r.URL.Path))
	})
}

// ofModel returns a handler for a route of a model that the request's client may use.
func (h *Handler) ofModel(serve http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h.opts.Allow(r.Context(), r.PathValue("model")); err != nil {
			AnswerUnread(w, r, func(w http.ResponseWriter) { refuse(w, err) })
			return
		}
		serve(w, r)
	}
}
