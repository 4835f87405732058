package job

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// profileFile is the file of a profile in its manifest, and in the folder of its rank.
const profileFile = "profile.json"

// maxProfiled is the number of ranks of a job whose profiles are kept.
const maxProfiled = 256

// sendProfile keeps the profile of a rank as chunks, and tells the manager. The manager reads that
// before it reads that the ranks have ended: no answer is needed.
func (r *run) sendProfile(ctx context.Context, f *os.File, rank int) error {
	digest, err := r.keepFile(ctx, profileFile, f)
	if err != nil {
		return err
	}
	return r.out.send(message{Profiled: &profiled{Rank: rank, Digest: digest}})
}

// copyProfile copies the profile of a rank to this node.
func (a *activeJob) copyProfile(ctx context.Context, n *nodeRun, p *profiled) {
	if !n.has(p.Rank) || p.Rank >= maxProfiled {
		return
	}
	if err := a.manager.fetchProfile(ctx, a.snapshot().ID, p); err != nil {
		a.note("the profile of rank %d is not kept: %v", p.Rank, err)
	}
}

// profilesPath returns the folder with the profiles of a job, one folder for each rank.
func (m *Manager) profilesPath(id string) string { return filepath.Join(m.opts.Dir, id+".profiles") }

func (m *Manager) profilePath(id string, rank int) string {
	return filepath.Join(m.profilesPath(id), strconv.Itoa(rank))
}

func (m *Manager) removeProfiles(id string) error { return os.RemoveAll(m.profilesPath(id)) }

// fetchProfile copies the profile of a rank, and writes it into the job's folder. The node of the rank
// chose what the digest names, so its manifest is checked before anything else is copied.
func (m *Manager) fetchProfile(ctx context.Context, id string, p *profiled) error {
	manifest, err := data.Load(ctx, m.opts.Chunks, p.Digest)
	if err != nil {
		return err
	}
	if len(manifest.Files) != 1 || manifest.Files[0].Name != profileFile || manifest.Size() > ranks.MaxProfile {
		return outboard.Errorf(outboard.Protocol, "", "it is no profile, or has more than %v", outboard.Bytes(ranks.MaxProfile))
	}
	if _, err := data.Copy(ctx, m.opts.Chunks, p.Digest); err != nil {
		return err
	}
	if err := os.MkdirAll(m.profilesPath(id), 0o700); err != nil {
		return err
	}
	dir := m.profilePath(id, p.Rank)
	if err := os.RemoveAll(dir); err != nil { // The rank's process may have ended and started again.
		return err
	}
	return manifest.Restore(ctx, m.opts.Chunks, dir)
}

// ProfiledRanks returns the ranks of a job of this node whose profiles have arrived, in order.
func (m *Manager) ProfiledRanks(id string) ([]int, error) {
	if _, err := m.own(id); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(m.profilesPath(id))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("profiles of job %s: %w", id, err)
	}
	var list []int
	for _, e := range entries {
		if rank, err := strconv.Atoi(e.Name()); err == nil {
			list = append(list, rank)
		}
	}
	slices.Sort(list)
	return list, nil
}

// Profile returns the profile of a rank of a job of this node.
func (m *Manager) Profile(id string, rank int) (client.JobProfile, error) {
	p := client.JobProfile{Rank: rank}
	j, err := m.own(id)
	if err != nil {
		return p, err
	}
	for _, r := range j.Ranks {
		if rank >= r.First && rank < r.First+r.Count {
			p.Node = r.Node
		}
	}
	text, err := os.ReadFile(filepath.Join(m.profilePath(id, rank), profileFile))
	if err == nil && !json.Valid(text) {
		err = outboard.Errorf(outboard.Protocol, "", "it is no profile")
	}
	if err != nil {
		return p, fmt.Errorf("profile of rank %d: %w", rank, err)
	}
	p.Profile = text
	return p, nil
}
