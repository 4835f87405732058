package repository

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/yamlerror"
)

// Config is a model's configuration file, model.yaml. Its zero value serves any model.
type Config struct {
	// Engine is the name of the engine; "" chooses it by the main file's extension.
	Engine string `json:"engine,omitempty" yaml:"engine"`
	// Aliases are additional names of the model.
	Aliases []string `json:"aliases,omitempty" yaml:"aliases"`
	// Replicas is the number of nodes that load the model; 0 means 1.
	Replicas int `json:"replicas,omitempty" yaml:"replicas"`
	// Nodes are the nodes that may load the model; empty means all.
	Nodes []string `json:"nodes,omitempty" yaml:"nodes"`
	// Threads is the number of processors that one execution uses, Instances the number of
	// concurrent executions; 0 lets the engine decide.
	Threads   int `json:"threads,omitempty" yaml:"threads"`
	Instances int `json:"instances,omitempty" yaml:"instances"`
	// Memory bounds the memory of the model's process; 0 means no limit.
	Memory Size `json:"memory,omitempty" yaml:"memory"`
	// Device is the device on which the engine computes: "cpu", "cuda", "cuda/INDEX".
	Device string `json:"device,omitempty" yaml:"device"`
	// Library is the path on the nodes of another build of the engine's library.
	Library string `json:"library,omitempty" yaml:"library"`
	// Server is the name of the server that executes the model, for the engine "process". A node
	// has a server with that name if its operator has defined it.
	Server string `json:"server,omitempty" yaml:"server"`
	// Idle is how long an unused model stays loaded; 0 means a quarter of an hour, a negative value
	// no limit.
	Idle Duration `json:"idle,omitempty" yaml:"idle"`
	// NaN determines whether inputs with a NaN or an infinity are refused: "refuse" or "allow"
	// (default).
	NaN string `json:"nan,omitempty" yaml:"nan"`
	// Pairs is the name of one of the model's files, with recorded requests and results that each
	// instance must reproduce before it gets requests. Tolerance is the allowed deviation of an
	// element of an output, relative to its size; 0 means a thousandth.
	Pairs     string  `json:"pairs,omitempty" yaml:"pairs"`
	Tolerance float64 `json:"tolerance,omitempty" yaml:"tolerance"`
	// Context and Sequences are for text: the most tokens of a sequence, and the most sequences
	// that are decoded at once.
	Context   int `json:"context,omitempty" yaml:"context"`
	Sequences int `json:"sequences,omitempty" yaml:"sequences"`

	Batching Batching `json:"batching,omitzero" yaml:"batching"`
	Queue    Queue    `json:"queue,omitzero" yaml:"queue"`
}

// Batching configures how requests are combined into batches.
type Batching struct {
	// Max is the most rows of a batch; 0 means 32 for a model with a batch dimension; 1 disables
	// batches.
	Max int `json:"max,omitempty" yaml:"max"`
	// Delay is how long a request waits for others; with 0 it waits as long as a batch takes, at
	// most 1 ms, while several clients share batches.
	Delay Duration `json:"delay,omitempty" yaml:"delay"`
	// Preferred are batch sizes at which the delay ends early; they are warmed up, as is Max.
	Preferred []int `json:"preferred,omitempty" yaml:"preferred"`
	// Goal is the latency for which batches are kept small.
	Goal Duration `json:"goal,omitempty" yaml:"goal"`
	// Pad lets requests of different shapes share a batch by padding them with zeros.
	Pad bool `json:"pad,omitempty" yaml:"pad"`
}

// Queue bounds the waiting requests.
type Queue struct {
	// Size is the most waiting requests; 0 means 256.
	Size int `json:"size,omitempty" yaml:"size"`
	// Timeout is the deadline of requests that set none; 0 means one minute.
	Timeout Duration `json:"timeout,omitempty" yaml:"timeout"`
}

// A Duration is written in Go's syntax: "5ms".
type Duration time.Duration

// UnmarshalYAML implements yaml.Unmarshaler.
func (d *Duration) UnmarshalYAML(n *yaml.Node) error {
	v, err := time.ParseDuration(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %q is no duration: write it like 5ms, 2s or 15m", n.Line, n.Value)
	}
	*d = Duration(v)
	return nil
}

// A Size is a number of bytes, written like 512MiB.
type Size int64

// UnmarshalYAML implements yaml.Unmarshaler.
func (s *Size) UnmarshalYAML(n *yaml.Node) error {
	b, err := outboard.ParseBytes(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*s = Size(b)
	return nil
}

// Limits of a configuration.
const (
	maxConfig    = 64 << 10 // bytes of the file
	maxInstances = 1024
	maxBatch     = 1 << 16
	maxQueue     = 1 << 20
	maxAliases   = 16
)

// ParseConfig parses a configuration file. Its errors name file and line.
func ParseConfig(file string, text []byte) (Config, error) {
	var c Config
	if len(text) > maxConfig {
		return c, outboard.Errorf(outboard.Invalid, file, "it has %d bytes, at most %d are allowed", len(text), maxConfig)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&c); err != nil && !errors.Is(err, io.EOF) {
		return c, outboard.Errorf(outboard.Invalid, "", "%s", yamlerror.Describe(file, err, types))
	}
	var more yaml.Node
	if decoder.Decode(&more) == nil {
		return c, outboard.Errorf(outboard.Invalid, "", "%s:%d: a second document: its settings would be ignored", file, more.Line)
	}
	if err := c.validate(); err != nil {
		return c, outboard.Errorf(outboard.Invalid, "", "%s:%d: %w", file, lineOf(text, err.field), err)
	}
	return c, nil
}

// types describes the types of settings.
//
//nolint:gochecknoglobals // a table
var types = map[string]yamlerror.Type{
	"int": {Want: "a whole number"}, "float64": {Want: "a number"}, "string": {Want: "a text"}, "[]string": {Want: "a list of names"}, "[]int": {Want: "a list of whole numbers"},
	"repository.Config":   {Want: "settings, such as `memory: 512MiB`"},
	"repository.Batching": {Want: "settings, such as `max: 16`", Of: " of batching"},
	"repository.Queue":    {Want: "settings, such as `size: 256`", Of: " of queue"},
}

// lineOf returns the line of a setting, 1 if it isn't found.
func lineOf(text []byte, field string) int {
	for i, line := range bytes.Split(text, []byte("\n")) {
		if name, _, ok := bytes.Cut(bytes.TrimSpace(line), []byte(":")); ok && string(name) == field {
			return i + 1
		}
	}
	return 1
}

// A fieldError describes a mistake in a setting.
type fieldError struct{ field, text string }

func (e *fieldError) Error() string { return e.field + ": " + e.text }

// validate returns the first mistake.
func (c *Config) validate() *fieldError {
	for _, n := range []struct {
		field       string
		value, most int
	}{
		{"replicas", c.Replicas, 1 << 16},
		{"threads", c.Threads, maxInstances},
		{"instances", c.Instances, maxInstances},
		{"context", c.Context, 1 << 24},
		{"sequences", c.Sequences, maxInstances},
		{"max", c.Batching.Max, maxBatch},
		{"size", c.Queue.Size, maxQueue},
	} {
		if n.value < 0 || n.value > n.most {
			return &fieldError{n.field, fmt.Sprintf("%d: want 0 to %d", n.value, n.most)}
		}
	}
	switch {
	case (c.Engine == "process") != (c.Server != ""):
		return &fieldError{"server", "want the name of a server with engine: process, and only with it"}
	case c.Memory < 0:
		return &fieldError{"memory", "want a positive size"}
	case c.NaN != "" && c.NaN != "refuse" && c.NaN != "allow":
		return &fieldError{"nan", fmt.Sprintf("%q: want refuse or allow", c.NaN)}
	case c.Tolerance < 0 || math.IsNaN(c.Tolerance) || math.IsInf(c.Tolerance, 0):
		return &fieldError{"tolerance", "want a positive number"}
	case c.Batching.Delay < 0 || time.Duration(c.Batching.Delay) > time.Minute:
		return &fieldError{"delay", "want 0 to 1m"}
	case c.Batching.Goal < 0:
		return &fieldError{"goal", "want a positive duration"}
	case c.Queue.Timeout < 0:
		return &fieldError{"timeout", "want a positive duration"}
	case len(c.Aliases) > maxAliases:
		return &fieldError{"aliases", fmt.Sprintf("at most %d", maxAliases)}
	case slices.ContainsFunc(c.Batching.Preferred, func(n int) bool { return n < 1 || n > maxBatch }):
		return &fieldError{"preferred", fmt.Sprintf("want sizes from 1 to %d", maxBatch)}
	}
	for _, alias := range c.Aliases {
		if err := CheckName(alias); err != nil {
			return &fieldError{"aliases", err.Error()}
		}
	}
	return nil
}

var modelName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// CheckName returns an error if a model can't have the name.
func CheckName(name string) error {
	if !modelName.MatchString(name) {
		return outboard.Errorf(outboard.Invalid, "", "%q can't be the name of a model: use letters, digits, '.', '-' and '_', at most 100", name)
	}
	return nil
}
