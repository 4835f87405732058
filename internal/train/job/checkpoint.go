package job

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/train/data"
)

// checkpointFile is the file of a checkpoint in its folder: python/outboard/checkpoint.py.
const checkpointFile = "state.pt"

// savedCheckpoints are the checkpoints of a run that its manager has not answered yet.
type savedCheckpoints struct {
	// reading is held while a file is read and hashed: one at a time, whatever its ranks do, so
	// that a job occupies one processor of the node and the memory of one chunk.
	reading sync.Mutex

	mu      sync.Mutex
	waiting map[string]chan error // by digest
}

// errSaving says that the same checkpoint is being saved already.
var errSaving = outboard.Errorf(outboard.Conflict, "save a checkpoint", "the same one is being saved already")

func (s *savedCheckpoints) add(digest string) (<-chan error, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == nil {
		s.waiting = make(map[string]chan error)
	}
	if s.waiting[digest] != nil {
		return nil, errSaving
	}
	c := make(chan error, 1)
	s.waiting[digest] = c
	return c, nil
}

func (s *savedCheckpoints) answer(k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.waiting[k.Digest]; c != nil {
		if k.Error == "" {
			c <- nil
		} else {
			c <- errors.New(k.Error)
		}
		delete(s.waiting, k.Digest)
	}
}

// saveCheckpoint keeps the file of a checkpoint as chunks, has the manager copy them, and returns
// when the job's record names it: until then the previous checkpoint counts.
func (r *run) saveCheckpoint(ctx context.Context, f *os.File, step int) error {
	digest, err := r.keepFile(ctx, checkpointFile, f)
	if err != nil {
		return err
	}
	answer, err := r.checkpoints.add(digest)
	if err != nil {
		return err
	}
	if err := r.out.send(message{Saved: &saved{Step: step, Digest: digest}}); err != nil {
		return err
	}
	select {
	case err := <-answer:
		if err == nil {
			o := &r.host.opts
			logKept(o.Log, r.trail.advance(ctx, digest, time.Now(), o.Chunks, o.Discard))
		}
		return err
	case <-ctx.Done():
		return outboard.Errorf(outboard.Unreachable, "save a checkpoint", "the job was stopped")
	}
}

// keepFile keeps a file of a rank as chunks, and returns the digest of its manifest, in which it has
// a name.
func (r *run) keepFile(ctx context.Context, name string, f *os.File) (string, error) {
	r.checkpoints.reading.Lock()
	defer r.checkpoints.reading.Unlock()
	var m data.Manifest
	if err := m.AddFile(ctx, r.host.opts.Chunks, name, 0o600, f); err != nil {
		return "", err
	}
	return data.Save(ctx, r.host.opts.Chunks, &m)
}

// copyCheckpoint copies a checkpoint to this node, and writes it to the job's record.
func (a *activeJob) copyCheckpoint(ctx context.Context, n *nodeRun, s *saved) {
	k := &kept{Digest: s.Digest}
	m, err := data.Copy(ctx, a.manager.opts.Chunks, s.Digest)
	if err == nil {
		err = a.updateNoting(ctx, fmt.Sprintf("the checkpoint of step %d", s.Step), func(j *client.Job) {
			j.Checkpoint = &client.JobCheckpoint{Digest: s.Digest, Step: s.Step, Size: outboard.Bytes(m.Size()), Saved: time.Now().UTC()}
			if j.Stages != nil { // A lost job continues from the checkpoint, which is later than the states.
				stages := *j.Stages
				stages.States = ""
				j.Stages = &stages
			}
		})
	}
	if err != nil {
		k.Error = err.Error()
		a.note("the checkpoint of step %d is not kept: %v", s.Step, err)
	} else {
		o := &a.manager.opts
		logKept(o.Log, n.trail.advance(ctx, s.Digest, time.Now(), o.Chunks, o.Discard))
	}
	_ = n.out.send(message{Kept: k}) // A lost node needs no answer.
}

func logKept(log *slog.Logger, err error) {
	if err != nil {
		log.Warn("superseded checkpoints are not deleted yet", "error", err)
	}
}

// Files returns the digests of the artifacts that jobs and datasets of the pool need: including
// those of ended jobs, which may be resumed.
func (m *Manager) Files(ctx context.Context) map[string]bool {
	files := make(map[string]bool)
	manifests := []string{}
	for _, j := range m.List() {
		if j.Spec.Files != "" {
			files[j.Spec.Files] = true
		}
		if j.Node == m.opts.Self {
			manifests = append(manifests, j.Manifests()...)
		}
	}
	for _, d := range m.Datasets() {
		if d.Node == m.opts.Self {
			manifests = append(manifests, d.Digest)
		}
	}
	slices.Sort(manifests)
	for _, digest := range slices.Compact(manifests) {
		files[digest] = true
		if manifest, err := data.Load(ctx, m.opts.Chunks, digest); err == nil {
			manifest.Digests(files)
		}
	}
	return files
}
