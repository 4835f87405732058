package worker

import (
	"context"
	"os"
	"testing"

	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A lateEngine loads its model only after the node has closed the socket.
type lateEngine struct {
	tensorFake
	loading, unloaded chan struct{}
}

func (e *lateEngine) Load(ctx context.Context, _ engine.Source, _ engine.Options) (engine.Model, error) {
	close(e.loading)
	<-ctx.Done()
	return e, nil
}

func (e *lateEngine) Close() error {
	close(e.unloaded)
	return nil
}

// A model that is loaded while its process ends is unloaded, too.
func TestModelLoadedAtTheEndIsUnloaded(t *testing.T) {
	e := &lateEngine{tensorFake{increment}, make(chan struct{}), make(chan struct{})}
	launch := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		return Run(ctx, socket, ProcessOptions{Engines: []engine.Engine{e}})
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-e.loading
		cancel()
	}()
	if w, err := Start(ctx, Options{Launch: launch, Engine: "fake"}); err == nil {
		t.Error("the model is loaded")
		_ = w.Close()
	}
	<-e.unloaded
}
