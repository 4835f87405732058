package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/train/compress"
	"github.com/outboard-run/outboard/internal/train/job"
	"github.com/outboard-run/outboard/internal/train/launch"
	training "github.com/outboard-run/outboard/internal/train/plan"
	"github.com/outboard-run/outboard/internal/yamlerror"
)

// A jobFile is the description of a training job in a YAML file.
type jobFile struct {
	Name           string            `yaml:"name"`
	Ranks          int               `yaml:"ranks"`
	Device         string            `yaml:"device"`
	Memory         string            `yaml:"memory"`
	RanksPerDevice int               `yaml:"ranksPerDevice"`
	MinRanks       int               `yaml:"minRanks"`
	Restarts       int               `yaml:"restarts"`
	Program        []string          `yaml:"program"`
	Files          string            `yaml:"files"`
	Dataset        string            `yaml:"dataset"`
	Stream         bool              `yaml:"stream"`
	Gradients      string            `yaml:"gradients"`
	Offload        string            `yaml:"offload"`
	Threads        string            `yaml:"threads"`
	StageLimit     string            `yaml:"stageLimit"`
	Env            map[string]string `yaml:"env"`
	Detach         bool              `yaml:"detach"`
	// Steps is the number of steps of the whole training, for the goals of a plan.
	Steps int `yaml:"steps"`
	// Profile is a file of `outboard train --profile` with the layers for a plan that has none.
	Profile string `yaml:"profile"`
	// profiledThreads is the number of threads with which these were measured, 0 if it is not known.
	profiledThreads int
	// Parallel has the degrees in which outboard.torch.pipeline divides the work.
	Parallel *parallelDegrees `yaml:"parallel"`
	// Plan is the model and the devices, as `outboard plan train` needs them.
	Plan *training.Job `yaml:"plan"`

	// lines are the lines of the file's members.
	lines map[string]int
}

// maxJobFile bounds a job's file in bytes.
const maxJobFile = 4 << 20

func readJobFile(path string) (*jobFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxJobFile+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxJobFile {
		return nil, usage("%s: more than %v", path, outboard.Bytes(maxJobFile))
	}
	j, err := parseJobFile(text)
	if err != nil {
		return nil, usage("%s: %w", path, err)
	}
	return j, nil
}

// unknownMember is how the decoder reports a member that a structure does not have, and wrongKind a
// value of another type.
var (
	unknownMember = lazyregexp.New(`field (\S+) not found in type \S+`)
	wrongKind     = lazyregexp.New("cannot unmarshal !!(?:\\w+ `(.*)`|(?:seq|map)) into (\\S+)")
)

// kindTexts describes the types of a job's file.
//
//nolint:gochecknoglobals // a table
var kindTexts = map[string]string{
	"int": "a whole number", "float64": "a number", "bool": "true or false", "string": "a text",
	"[]string": "a list of texts, such as [python3, train.py]", "[]int": "a list of whole numbers", "map[string]string": `texts by name, such as {LR: "0.1"}`,
}

// describeKind describes a value of another type without the types of this program.
func describeKind(text string) string {
	m := wrongKind.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	want := kindTexts[m[2]]
	if want == "" {
		want = "another kind of value: docs/training.md has examples"
		if strings.HasPrefix(m[2], "[]") {
			want = "a list"
		}
	}
	if want = "want " + want; m[1] != "" {
		want = m[1] + ": " + want
	}
	return strings.Replace(text, m[0], want, 1)
}

// parseJobFile parses a job's file, and refuses unknown members.
func parseJobFile(text []byte) (*jobFile, error) {
	j := jobFile{lines: make(map[string]int)}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&j); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, errors.New("it is empty")
		}
		text := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "yaml: "), "unmarshal errors:\n  ")
		lines := strings.Split(unknownMember.ReplaceAllString(text, "there is no setting $1"), "\n")
		for i := range lines {
			lines[i] = describeKind(lines[i])
		}
		return nil, errors.New(strings.Join(lines, "\n"))
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err == nil && len(root.Content) == 1 {
		if err := yamlerror.CheckWhole(&root, reflect.TypeFor[jobFile]()); err != nil {
			return nil, err
		}
		members := root.Content[0].Content
		for i := 0; i+1 < len(members); i += 2 {
			j.lines[members[i].Value] = members[i].Line
		}
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("it has more than one document: want one job in a file")
	}
	return &j, nil
}

// mistake returns an error in a member, with its line.
func (j *jobFile) mistake(member string, err error) error {
	text := err.Error()
	if name, rest, ok := strings.Cut(text, ": "); ok && (name == member || name == "stage-limit") {
		text = rest // The flag, or the member, is named once.
	}
	if line := j.lines[member]; line > 0 {
		return usage("line %d: %s: %s", line, member, text)
	}
	return usage("%s: %s", member, text)
}

// check returns an error that names the line of a member which no job can have.
func (j *jobFile) check() error {
	for _, n := range []struct {
		member string
		value  int
	}{{"ranks", j.Ranks}, {"ranksPerDevice", j.RanksPerDevice}, {"minRanks", j.MinRanks}, {"restarts", j.Restarts}, {"steps", j.Steps}} {
		if n.value < 0 {
			return j.mistake(n.member, fmt.Errorf("%d: want no negative number", n.value))
		}
	}
	if err := j.checkRanks(); err != nil {
		return err
	}
	if _, err := compress.Parse(j.Gradients); err != nil {
		return j.mistake("gradients", err)
	}
	for _, r := range []struct {
		member string
		launch.Resources
	}{{"offload", launch.Resources{Offload: j.Offload}}, {"threads", launch.Resources{Threads: j.Threads}}, {"stageLimit", launch.Resources{StageLimit: j.StageLimit}}} {
		if _, err := r.Check(); err != nil {
			return j.mistake(r.member, err)
		}
	}
	return nil
}

// checkRanks checks the numbers of ranks against each other. Without ranks, a plan may determine them.
func (j *jobFile) checkRanks() error {
	switch {
	case j.Ranks > job.MaxRanks:
		return j.mistake("ranks", fmt.Errorf("%d: want %d at most", j.Ranks, job.MaxRanks))
	case j.Ranks > 0 && j.MinRanks > j.Ranks:
		return j.mistake("minRanks", fmt.Errorf("%d: the job has only %d ranks", j.MinRanks, j.Ranks))
	case j.Ranks > 0 && j.RanksPerDevice > 0 && j.Ranks%j.RanksPerDevice != 0:
		return j.mistake("ranksPerDevice", fmt.Errorf("%d: the job's %d ranks are no multiple", j.RanksPerDevice, j.Ranks))
	}
	return nil
}

// spec returns the job; folder is the file's folder, to which the program's paths are relative.
func (j *jobFile) spec(folder string) (client.JobSpec, []byte, error) {
	s := client.JobSpec{
		Name: j.Name, Ranks: max(j.Ranks, 1), PerDevice: j.RanksPerDevice, MinRanks: j.MinRanks, Restarts: j.Restarts,
		Args: j.Program, Data: j.Dataset, Stream: j.Stream, Gradients: j.Gradients, Offload: j.Offload, Threads: j.Threads, StageLimit: j.StageLimit, Env: j.Env, Detach: j.Detach,
	}
	if err := j.check(); err != nil {
		return s, nil, err
	}
	if len(j.Program) == 0 {
		return s, nil, usage("the job has no program: add `program: [python3, train.py]`")
	}
	if j.Device != "" {
		if err := s.Selector.Set(j.Device); err != nil {
			return s, nil, j.mistake("device", err)
		}
	}
	if j.Memory != "" {
		if err := s.Memory.Set(j.Memory); err != nil {
			return s, nil, j.mistake("memory", err)
		}
	}
	if err := j.Parallel.apply(&s); err != nil {
		return s, nil, j.mistake("parallel", err)
	}
	files := folder
	if j.Files != "" {
		files = j.Files
		if !filepath.IsAbs(files) {
			files = filepath.Join(folder, files)
		}
	}
	archive, err := job.Pack(files)
	if err != nil && j.Files != "" {
		err = j.mistake("files", err)
	}
	return s, archive, err
}

// isJobFile reports whether an argument of `outboard train` is a job's file, not a program.
func isJobFile(name string) bool {
	return strings.HasSuffix(name, ".yaml") || strings.HasSuffix(name, ".yml")
}

// runTrainFile submits the job of a file, unless its plan says that there is no room for it.
func runTrainFile(ctx context.Context, env *Env, opts *trainOptions, path string) error {
	j, err := readJobFile(path)
	if err != nil {
		return err
	}
	spec, archive, err := j.spec(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if j.Parallel.planned() {
		err = j.applyPlan(ctx, env, path, &spec)
	} else {
		err = j.checkPlan(ctx, env, path)
	}
	if err != nil {
		return err
	}
	return submitJob(ctx, env, opts, &spec, archive)
}
