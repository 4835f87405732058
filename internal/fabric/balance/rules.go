package balance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/yamlerror"
)

// A Rule configures how the calls of some services are balanced.
type Rule struct {
	// Services are patterns, as in policies; none means all.
	Services []string `yaml:"services"`
	Config   `yaml:",inline"`
}

// Rules are the rules of a file in their order: the first that matches a service applies.
type Rules []Rule

// defaultConfig balances the services that no rule matches: the nearest locality first,
// the endpoint with fewer outstanding requests of two, weighted by load reports, with
// ejection after consecutive failures.
func defaultConfig() Config {
	return Config{
		Method:   LeastRequests,
		Reports:  Reports{Enabled: true},
		Ejection: Ejection{Consecutive: 5},
	}
}

// For returns the configuration of a service's picker on the node self.
func (r Rules) For(service, self string) Config {
	c := defaultConfig()
	for _, one := range r {
		if one.matches(service) {
			c = one.Config
			break
		}
	}
	c.Subset.Client = self
	// Endpoints of the own node come first, unless the rule names a locality.
	if c.Locality.Zone == "" && c.Locality.Node == "" {
		c.Locality.Node = self
	}
	if c.Locality.Node == "any" {
		c.Locality.Node = ""
	}
	return c
}

// matches reports whether the rule applies to a service.
func (r *Rule) matches(service string) bool {
	for _, pattern := range r.Services {
		if ok, err := path.Match(pattern, service); ok && err == nil {
			return true
		}
	}
	return len(r.Services) == 0
}

// section is the top-level key of a policy file that holds the rules.
const section = "balance:"

// SplitRules separates a policy file into its policies and its rules. Both keep their line numbers.
// A file without content is refused: the command that should have written it has failed. The
// policies are returned beside an error as well.
func SplitRules(name string, text []byte) (policies []byte, found Rules, err error) {
	var ours, theirs bytes.Buffer
	inside := false
	for line := range bytes.Lines(text) {
		if begins := line[0] != ' ' && line[0] != '#' && line[0] != '-' && line[0] != '\n'; begins {
			inside = strings.HasPrefix(string(line), section)
		}
		to, blank := &theirs, &ours
		if inside {
			to, blank = &ours, &theirs
		}
		to.Write(line)
		blank.WriteByte('\n')
	}
	if isEmpty(text) {
		return theirs.Bytes(), nil, &yamlerror.Error{File: name, Line: 1, Column: 1, Text: "the file is empty: write `policies: []` to remove all policies"}
	}
	found, err = parseRules(name, ours.Bytes())
	return theirs.Bytes(), found, err
}

// isEmpty reports whether a text has nothing but comments.
func isEmpty(text []byte) bool {
	var document yaml.Node
	return yaml.Unmarshal(text, &document) == nil && document.Kind == 0
}

// located gives an error of the YAML package its position, as errors of policies have it.
func located(name string, err error) error {
	_, where, ok := strings.Cut(err.Error(), "line ")
	number, what, is := strings.Cut(where, ": ")
	line, noNumber := strconv.Atoi(number)
	if !ok || !is || noNumber != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	what, _, _ = strings.Cut(what, " in type ")
	return &yamlerror.Error{File: name, Line: line, Column: 1, Text: "balance: " + what}
}

func parseRules(name string, text []byte) (Rules, error) {
	var file struct {
		Balance Rules `yaml:"balance"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, located(name, err)
	}
	var nodes struct {
		Balance []yaml.Node `yaml:"balance"`
	}
	if err := yaml.Unmarshal(text, &nodes); err != nil {
		return nil, located(name, err)
	}
	for i := range file.Balance {
		written := writtenRule{Rule: &file.Balance[i], node: resolved(&nodes.Balance[i])}
		if err := written.check(); err != nil {
			at := nodeAt(written.node, err.path)
			return nil, &yamlerror.Error{File: name, Line: at.Line, Column: at.Column, Text: "balance: " + err.Error()}
		}
	}
	return file.Balance, nil
}
