package serve

import (
	"errors"
	"fmt"
	"syscall"
	"time"
)

const (
	// failureRetention is how long requests are answered with the error of a model that could not be
	// loaded, before it is loaded again.
	failureRetention = 15 * time.Second
	// spaceInterval is the interval between checks whether the disk has space for a model.
	spaceInterval = 2 * time.Second
)

// errNoSpace is the error of a model whose files the disk has no space for.
type errNoSpace struct{ error }

func (e *errNoSpace) Error() string {
	return fmt.Sprintf("its files: %v; it is loaded once there is space", e.error)
}

func (e *errNoSpace) Unwrap() error { return e.error }

// checkSpace returns an errNoSpace if the disk has no space for the model's files that are not on
// this node.
func checkSpace(i *instance) error {
	missing := int64(0)
	for _, f := range i.spec.Files {
		has, err := i.server.opts.Artifacts.Has(f.Digest)
		if err != nil {
			return err
		}
		if !has {
			missing += f.Size
		}
	}
	if missing == 0 {
		return nil
	}
	err := i.server.opts.CheckSpace(missing)
	if errors.Is(err, syscall.ENOSPC) {
		return &errNoSpace{err}
	}
	return err
}

// awaitRetry waits as long as requests are to get the error of an instance that could not be loaded:
// the next one then loads the model. It waits for space on the disk if there was none, and reports
// whether the model is to be loaded without a request.
func awaitRetry(s *Server, i *instance) (again bool) {
	_, lacksSpace := errors.AsType[*errNoSpace](i.err)
	interval := failureRetention
	if lacksSpace {
		interval = spaceInterval
	}
	for {
		select {
		case <-time.After(interval):
		case <-s.life.Done():
			return false
		}
		s.mu.Lock()
		current := s.loaded[i.key] == i
		s.mu.Unlock()
		if !current || !lacksSpace || checkSpace(i) == nil {
			return current && errors.Is(i.err, syscall.ENOSPC) && isInForce(s, &i.spec)
		}
	}
}
