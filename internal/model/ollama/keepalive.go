package ollama

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/outboard-run/outboard/internal/model/engine"
)

// A keepAlive is how long a model stays loaded after a request: 0 unloads it, a negative duration
// keeps it. It is a text such as "5m", or a number of seconds.
type keepAlive time.Duration

// maxKeep is the longest limited duration; a longer one keeps the model.
const maxKeep = 100 * 365 * 24 * time.Hour

// UnmarshalJSON implements json.Unmarshaler.
func (k *keepAlive) UnmarshalJSON(b []byte) error {
	var seconds float64
	var text string
	switch {
	case json.Unmarshal(b, &seconds) == nil:
		*k = -1
		if seconds >= 0 && seconds < maxKeep.Seconds() {
			*k = keepAlive(seconds * float64(time.Second))
		}
		return nil
	case json.Unmarshal(b, &text) == nil:
		d, err := time.ParseDuration(text)
		if err != nil {
			return invalid(`keep_alive is %.40q: want a duration such as "5m", or a number of seconds`, text)
		}
		*k = keepAlive(d)
		return nil
	}
	return invalid(`keep_alive is %.40s: want a duration such as "5m", or a number of seconds`, b)
}

// keepLimit bounds the time in which the nodes learn how long a model is to stay loaded.
const keepLimit = 2 * time.Second

// keep has the nodes keep a model as its request demands, after the request. A client that may not
// change what is loaded sends the member as well, so it is ignored then.
func (s *Server) keep(r *http.Request, name string, k *keepAlive) {
	if k == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), keepLimit)
	defer cancel()
	if err := s.opts.Keep(ctx, modelName(name), time.Duration(*k)); err != nil {
		s.opts.Log.Debug("the keep_alive of a request has no effect", "model", name, "error", err)
	}
}

// unload unloads the model of a request without a prompt.
func (s *Server) unload(r *http.Request, t *turn) error {
	if err := s.opts.Keep(r.Context(), modelName(t.name), 0); err != nil {
		return notFound(t.name, err)
	}
	return t.out.last(t.line(&part{reason: "unload"}, engine.Usage{}))
}
