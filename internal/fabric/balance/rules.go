package balance

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
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

// SplitRules separates a policy file into its policies and its rules. Both keep their line
// numbers.
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
	found, err = parseRules(ours.Bytes())
	if err != nil {
		return nil, nil, located(name, err)
	}
	return theirs.Bytes(), found, nil
}

// located moves the line number of a YAML error to its front, as in the errors of policies.
func located(name string, err error) error {
	_, where, ok := strings.Cut(err.Error(), "line ")
	line, what, is := strings.Cut(where, ": ")
	if !ok || !is {
		return fmt.Errorf("%s: %w", name, err)
	}
	what, _, _ = strings.Cut(what, " in type ")
	return fmt.Errorf("%s:%s: balance: %s", name, line, what)
}

func parseRules(text []byte) (Rules, error) {
	var file struct {
		Balance Rules `yaml:"balance"`
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for i := range file.Balance {
		if err := file.Balance[i].check(); err != nil {
			return nil, fmt.Errorf("balance: rule %d: %w", i+1, err)
		}
	}
	return file.Balance, nil
}

// check reports whether the rule's patterns and configuration are valid.
func (r *Rule) check() error {
	for _, pattern := range r.Services {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("services: %q is no pattern", pattern)
		}
	}
	p, err := New(r.Config)
	if err == nil {
		p.Update(nil, time.Time{})
	}
	return err
}
