package serve_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/internal/model/repository"
)

// A model that is pushed and requested while the routes are brought in line with the repository is
// loaded once.
func TestLoadOnceWhileUpdating(t *testing.T) {
	b := open(t)
	b.pushAs("other", "other", repository.Config{})
	ended := make(chan struct{})
	var updating sync.WaitGroup
	for range 4 {
		updating.Go(func() {
			for !isClosed(ended) {
				if err := b.Load(t.Context(), "other", ""); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for n := range 100 {
		name, content := fmt.Sprintf("m%d", n), fmt.Sprintf("c%d", n)
		b.pushAs(name, content, repository.Config{})
		if _, err := b.inferWith(name, 0); err != nil {
			t.Fatal(err)
		}
		if loads := b.engine.loads(content); loads != 1 {
			t.Errorf("%s was loaded %d times", name, loads)
		}
	}
	close(ended)
	updating.Wait()
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
