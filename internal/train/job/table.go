package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool/state"
)

const (
	// jobsPrefix precedes NODE/ID in the pool's table: the node writes its own jobs.
	jobsPrefix = "jobs/"
	maxRecord  = 400 << 10
	// keptJobs is the number of ended jobs that a node keeps.
	keptJobs = 100
)

func keyOf(j *client.Job) string { return jobsPrefix + string(j.Node) + "/" + j.ID }

// apply applies a record of the table to the view.
func (m *Manager) apply(e state.Entry) (bool, error) {
	if name, ok := strings.CutPrefix(e.Key, datasetsPrefix); ok {
		return m.applyDataset(name, e)
	}
	rest, ok := strings.CutPrefix(e.Key, jobsPrefix)
	if !ok {
		return false, nil
	}
	node, id, _ := strings.Cut(rest, "/")
	if e.Deleted {
		delete(m.all, rest)
		return true, nil
	}
	j, err := decodeJob(e.Value)
	if err != nil {
		return false, err
	}
	if string(j.Node) != node || j.ID != id {
		return false, errors.New("the record has the name of another job")
	}
	m.all[rest] = j
	return true, nil
}

func decodeJob(text []byte) (j client.Job, err error) {
	if len(text) > maxRecord {
		return j, fmt.Errorf("a job of %d bytes", len(text))
	}
	if err := state.DecodeJSON(text, &j); err != nil {
		return j, err
	}
	if !validID(j.ID) {
		return j, fmt.Errorf("%.40q is no job", j.ID)
	}
	return j, nil
}

// write writes a job of this node to the table.
func (m *Manager) write(ctx context.Context, j *client.Job) error {
	text, err := json.Marshal(j)
	if err != nil {
		return err
	}
	if _, err := m.opts.State.Put(ctx, keyOf(j), text, 0); err != nil {
		return fmt.Errorf("job %s: %w", j.ID, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.written[j.ID] = *j
	return nil
}

// record returns the record of a job that this node drives from now on.
func (m *Manager) record(j *client.Job) record {
	return record{write: m.write, log: m.opts.Log, job: *j}
}

// prune deletes the oldest ended jobs of this node beyond keptJobs.
func (m *Manager) prune(ctx context.Context) {
	ended := 0
	for _, j := range m.List() {
		if j.Node != m.opts.Self || !j.State.Final() {
			continue
		}
		if ended++; ended <= keptJobs {
			continue
		}
		m.mu.Lock()
		delete(m.written, j.ID)
		m.mu.Unlock()
		e, err := m.opts.State.Get(ctx, keyOf(&j))
		if err == nil {
			_, err = m.opts.State.Delete(ctx, keyOf(&j), e.Revision)
		}
		if err = errors.Join(err, removeLines(m.opts.Dir, j.ID), m.removeProfiles(j.ID)); err != nil && !errors.Is(err, os.ErrNotExist) {
			m.opts.Log.Warn("an old job is not removed", "job", j.ID, "error", err)
		}
	}
}
