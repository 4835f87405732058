package node

import (
	"net/http"
	"os"

	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/ollama"
	"github.com/outboard-run/outboard/internal/model/openai"
	"github.com/outboard-run/outboard/internal/model/textpool"
)

// modelTexts are the interfaces for language models.
type modelTexts struct {
	openai *openai.Server
	ollama *ollama.Server
}

func (n *Node) newModelTexts(m *models) *modelTexts {
	pool := textpool.New(textpool.Options{
		Server: m.server, CacheScope: cacheScopeOf, Metrics: n.registry, Log: m.log,
		Open: func(digest string) (*os.File, error) { return artifact.OpenFile(n.artifacts, digest) },
	})
	return &modelTexts{
		openai: openai.New(openai.Options{Models: pool}),
		ollama: ollama.New(ollama.Options{Models: pool, Keep: pool.Keep, Log: m.log}),
	}
}

// refuseModel refuses a request that the keys do not admit before it reads the body, in the error
// format of its path's interface.
func refuseModel(w http.ResponseWriter, r *http.Request, err error) {
	oip.AnswerUnread(w, r, func(w http.ResponseWriter) { writeRefusal(w, r, err) })
}

func writeRefusal(w http.ResponseWriter, r *http.Request, err error) {
	switch gateway.AppOf(r.URL.Path) {
	case "v1":
		openai.Refuse(w, err)
	case "api":
		ollama.Refuse(w, err)
	case "v2":
		oip.Refuse(w, err)
	default:
		gateway.NewProblem(err).Write(w)
	}
}
