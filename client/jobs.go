package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
)

// A JobSpec describes a training job whose ranks run on the nodes of the pool.
type JobSpec struct {
	// Name describes the job for people.
	Name string `json:"name,omitempty"`
	// Ranks is the number of processes. PerDevice is how many of them share one leased device; 0
	// means 1. Ranks must be a multiple of PerDevice.
	Ranks     int `json:"ranks"`
	PerDevice int `json:"ranks_per_device,omitempty"`
	// MinRanks is the least number of ranks with which the job continues when nodes are lost; 0
	// means Ranks: the job waits for nodes.
	MinRanks int `json:"min_ranks,omitempty"`
	// Selector selects the devices. Memory bounds the device memory of each lease; 0 means all of
	// it.
	Selector outboard.Selector `json:"selector"`
	Memory   outboard.Bytes    `json:"memory,omitempty"`
	// Args is the program with its arguments. It is started in a folder with Files, the digest of
	// an artifact of this node: a tar archive. "" means an empty folder.
	Args  []string `json:"args"`
	Files string   `json:"files,omitempty"`
	// Env are variables besides those that the node sets.
	Env map[string]string `json:"env,omitempty"`
	// Data names a dataset of the pool. OUTBOARD_DATA gives the ranks its folder.
	Data string `json:"data,omitempty"`
	// Stream has the ranks read the dataset's files into memory when they need them (Python:
	// outboard.data); there is no folder, and the ranks start at once.
	Stream bool `json:"stream,omitempty"`
	// Gradients is how sums of gradients are sent between nodes: "plain" or "", "fp16",
	// "topk=FRACTION" (the greatest elements; the others are added to the next sum),
	// "loss=FRACTION" (the fraction of parts that may be dropped under congestion),
	// "loss=FRACTION,datagrams" (in datagrams, of which the network may lose that fraction) or
	// "store" (through the nodes' object store).
	Gradients string `json:"gradients,omitempty"`
	// Offload bounds the tensors that a step of each rank saves for its backward pass, such as
	// "device=512MiB,host=2GiB,disk=20GiB": what has no room on the device lies in the other tiers of
	// memory. "" sets no bounds.
	Offload string `json:"offload,omitempty"`
	// Threads is how many threads each rank computes with: a number, "auto" (by measured steps) or "",
	// an equal share of the node's processors.
	Threads string `json:"threads,omitempty"`
	// StageLimit bounds the time of a process of a pipeline's stage, such as "15m": then its state is
	// saved between two steps, and another process continues on the same node. With "15m,elsewhere" it
	// continues on another node if a device of one is free. "" sets no bound.
	StageLimit string `json:"stage_limit,omitempty"`
	// Plan describes the plan by which the job runs, for people; "" if it runs without one.
	Plan string `json:"plan,omitempty"`
	// Profile has each rank measure where its time and its memory go: JobProfiles returns the
	// profiles.
	Profile bool `json:"profile,omitempty"`
	// Restarts is how often the ranks start again after the loss of a node; 0 means 10.
	Restarts int `json:"restarts,omitempty"`
	// Detach lets the job continue when the request that submits it ends.
	Detach bool `json:"detach,omitempty"`
}

// JobState is the state of a job.
type JobState string

// The states. A waiting job has no devices; the last three are final, until the job is resumed.
const (
	JobWaiting   JobState = "waiting"
	JobStarting  JobState = "starting"
	JobRunning   JobState = "running"
	JobSucceeded JobState = "succeeded"
	JobFailed    JobState = "failed"
	JobCanceled  JobState = "canceled"
)

// Final reports whether a job in this state has ended.
func (s JobState) Final() bool { return s == JobSucceeded || s == JobFailed || s == JobCanceled }

// A Job is a training job. Node is the node to which it was submitted.
type Job struct {
	ID    string          `json:"id"`
	Node  outboard.NodeID `json:"node"`
	Spec  JobSpec         `json:"spec"`
	State JobState        `json:"state"`
	// Reason is why the job waits, or why it ended.
	Reason string `json:"reason,omitempty"`
	// Status is the exit status of the rank that failed first.
	Status int `json:"status,omitempty"`
	// Attempt counts the starts of the ranks, from 1; World is the number of ranks now.
	Attempt int            `json:"attempt"`
	World   int            `json:"world,omitempty"`
	Ranks   []JobRank      `json:"ranks,omitempty"`
	Why     []string       `json:"why,omitempty"`
	Created time.Time      `json:"created"`
	Started time.Time      `json:"started,omitzero"`
	Ended   time.Time      `json:"ended,omitzero"`
	Prog    JobProgress    `json:"progress,omitzero"`
	Devices []JobDeviceUse `json:"devices,omitempty"`
	// Checkpoint is the last checkpoint, from which the next attempt continues. DataDigest is the
	// digest of the dataset when the job was submitted.
	Checkpoint *JobCheckpoint `json:"checkpoint,omitempty"`
	DataDigest string         `json:"data_digest,omitempty"`
	// Stages is set while stages may continue on other nodes.
	Stages *JobStages `json:"stages,omitempty"`
}

// JobStages are the states of all ranks of a job whose stages continue on other nodes, after the same
// step. The next attempt starts the program again and repeats its earlier steps, so it begins with
// what the first attempt of these steps began with.
type JobStages struct {
	// States is the digest of the states, "" before the first ones, and when a later checkpoint
	// replaces them. They are for World ranks.
	States string `json:"states,omitempty"`
	World  int    `json:"world"`
	// Attempt is the first attempt of these steps, Checkpoint the digest of the checkpoint with which
	// it began, "" for none.
	Attempt    int    `json:"attempt"`
	Checkpoint string `json:"checkpoint,omitempty"`
	// Latency and Bandwidth, in bytes per second, are those of the slowest link between the nodes of
	// the first attempt, by which the algorithms of sums were chosen.
	Latency   time.Duration `json:"latency_ns,omitempty"`
	Bandwidth float64       `json:"bandwidth,omitempty"`
}

// Manifests returns the digests of the manifests that the job needs to continue, except that of its
// dataset.
func (j *Job) Manifests() (digests []string) {
	if j.Checkpoint != nil {
		digests = append(digests, j.Checkpoint.Digest)
	}
	if s := j.Stages; s != nil {
		for _, digest := range []string{s.States, s.Checkpoint} {
			if digest != "" {
				digests = append(digests, digest)
			}
		}
	}
	return digests
}

// A JobCheckpoint is a saved state of a job.
type JobCheckpoint struct {
	Digest string         `json:"digest"`
	Step   int            `json:"step"`
	Size   outboard.Bytes `json:"size"`
	Saved  time.Time      `json:"saved"`
}

// A Dataset is a folder that is stored as chunks.
type Dataset struct {
	Name string `json:"name"`
	// Node is the node on which the dataset was put, Digest the digest of its manifest.
	Node    outboard.NodeID `json:"node"`
	Digest  string          `json:"digest"`
	Files   int             `json:"files"`
	Size    outboard.Bytes  `json:"size"`
	Created time.Time       `json:"created"`
}

// Datasets lists the datasets of the pool, by name.
func (c *Client) Datasets(ctx context.Context) ([]Dataset, error) {
	return get[[]Dataset](ctx, c, "/v1/data")
}

// Dataset returns the dataset with a name, or NODE/NAME.
func (c *Client) Dataset(ctx context.Context, name string) (Dataset, error) {
	return get[Dataset](ctx, c, "/v1/data/"+url.PathEscape(name))
}

// PutDataset stores a dataset under a name, given its manifest, whose chunks are artifacts of this
// node.
func (c *Client) PutDataset(ctx context.Context, name, digest string) (Dataset, error) {
	var d Dataset
	err := c.do(ctx, http.MethodPut, "/v1/data/"+url.PathEscape(name)+"?"+url.Values{"digest": {digest}}.Encode(), nil, &d)
	return d, err
}

// DeleteDataset deletes a dataset of this node.
func (c *Client) DeleteDataset(ctx context.Context, name string) error {
	return c.do(ctx, http.MethodDelete, "/v1/data/"+url.PathEscape(name), nil, nil)
}

// Chunk returns a part of a dataset, which the node fetches from another node if necessary.
func (c *Client) Chunk(ctx context.Context, digest string) (io.ReadCloser, error) {
	response, err := c.open(ctx, http.MethodGet, "/v1/chunks/"+url.PathEscape(digest), nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// A JobRank is the place of some ranks of a job: Count ranks from First on.
type JobRank struct {
	First  int               `json:"first"`
	Count  int               `json:"count"`
	Node   outboard.NodeID   `json:"node"`
	Device outboard.DeviceID `json:"device"`
}

// A JobDeviceUse is how long a job has had devices of a node, to compute its price.
type JobDeviceUse struct {
	Node    outboard.NodeID `json:"node"`
	Devices int             `json:"devices"`
	Seconds float64         `json:"seconds"`
}

// JobProgress is the progress that the lines of rank 0 report: "step 12/100", "loss 0.25", "samples
// 64".
type JobProgress struct {
	Step    int           `json:"step,omitempty"`
	Steps   int           `json:"steps,omitempty"`
	Loss    float64       `json:"loss,omitempty"`
	Samples float64       `json:"samples_per_s,omitempty"`
	Left    time.Duration `json:"left_ns,omitempty"`
}

// A JobLine is a line that a rank has written; Rank is -1 for a line about the job itself.
type JobLine struct {
	Time    time.Time       `json:"time"`
	Attempt int             `json:"attempt"`
	Rank    int             `json:"rank"`
	Node    outboard.NodeID `json:"node,omitempty"`
	Stderr  bool            `json:"stderr,omitempty"`
	Text    string          `json:"text"`
}

// A JobEvent is one line of the response to a request that submits or follows a job. One field
// is set.
type JobEvent struct {
	Job    *Job     `json:"job,omitempty"`
	Line   *JobLine `json:"line,omitempty"`
	Failed *Failure `json:"failed,omitempty"`
	// Profile is set in responses to JobProfiles alone.
	Profile *JobProfile `json:"profile,omitempty"`
}

// A JobProfile is the profile that a rank of a job has measured, in the format of
// `outboard train --profile`.
type JobProfile struct {
	Rank    int             `json:"rank"`
	Node    outboard.NodeID `json:"node,omitempty"`
	Profile json.RawMessage `json:"profile"`
}

// SubmitJob submits a job and calls event with its events until it ends or, with Detach, until it
// is accepted. It returns the job's last state. If ctx ends before, a job without Detach is
// canceled.
func (c *Client) SubmitJob(ctx context.Context, spec JobSpec, event func(JobEvent) error) (Job, error) {
	return c.followJob(ctx, http.MethodPost, "/v1/jobs", spec, event)
}

// ResumeJob starts a failed or canceled job again, from its last checkpoint.
func (c *Client) ResumeJob(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodPost, "/v1/jobs/"+url.PathEscape(id)+"/resume", nil, nil)
}

// CancelJob ends the ranks of a job.
func (c *Client) CancelJob(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, "/v1/jobs/"+url.PathEscape(id), nil, nil)
}

// Jobs lists the training jobs of the pool, newest first.
func (c *Client) Jobs(ctx context.Context) ([]Job, error) { return get[[]Job](ctx, c, "/v1/jobs") }

// Job returns one job.
func (c *Client) Job(ctx context.Context, id string) (Job, error) {
	return get[Job](ctx, c, "/v1/jobs/"+url.PathEscape(id))
}

// JobLogs calls event with the last lines of a job, all for 0, and, if follow is set, with later
// ones until the job ends.
func (c *Client) JobLogs(ctx context.Context, id string, lines int, follow bool, event func(JobEvent) error) error {
	query := url.Values{"lines": {strconv.Itoa(lines)}, "follow": {strconv.FormatBool(follow)}}
	_, err := c.followJob(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/logs?"+query.Encode(), nil, event)
	return err
}

// JobProfiles calls each with the profiles that the ranks of a job's last attempt have sent, in the
// order of ranks. A rank sends its profile when its program ends by itself.
func (c *Client) JobProfiles(ctx context.Context, id string, each func(JobProfile) error) error {
	_, err := c.followJob(ctx, http.MethodGet, "/v1/jobs/"+url.PathEscape(id)+"/profiles", nil, func(e JobEvent) error {
		if e.Profile == nil {
			return nil
		}
		return each(*e.Profile)
	})
	return err
}

func (c *Client) followJob(ctx context.Context, method, path string, in any, event func(JobEvent) error) (last Job, err error) {
	response, err := c.open(ctx, method, path, in)
	if err != nil {
		return last, err
	}
	defer response.Body.Close()
	events := json.NewDecoder(response.Body)
	for {
		var e JobEvent
		if err := events.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) {
				return last, nil
			}
			return last, errors.Join(ctx.Err(), outboard.Errorf(outboard.Unreachable, "follow a job", "the node has ended: %w", err))
		}
		if e.Failed != nil {
			return last, e.Failed.Err()
		}
		if e.Job != nil {
			last = *e.Job
		}
		if err := event(e); err != nil {
			return last, err
		}
	}
}
