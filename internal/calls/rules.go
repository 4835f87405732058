package calls

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

// A rule says how the calls of some services are balanced.
type rule struct {
	// Services are patterns, as in policies; none means all.
	Services       []string `yaml:"services"`
	balance.Config `yaml:",inline"`
}

// rules are those of a file, in order: the first that fits counts.
type rules []rule

// defaultBalance is for services that no rule fits: near before far, the less busy
// of two, weighted by reports, and a pause for who fails.
func defaultBalance() balance.Config {
	return balance.Config{
		Method:   balance.LeastRequests,
		Reports:  balance.Reports{Enabled: true},
		Ejection: balance.Ejection{Consecutive: 5},
	}
}

// of is the balance of a service, seen from a node.
func (r rules) of(service string, self outboard.NodeID) balance.Config {
	c := defaultBalance()
	for _, one := range r {
		if one.fits(service) {
			c = one.Config
			break
		}
	}
	c.Subset.Client = string(self)
	// Near endpoints come first, unless the rule says where it is itself.
	if c.Locality.Zone == "" && c.Locality.Node == "" {
		c.Locality.Node = string(self)
	}
	if c.Locality.Node == "any" {
		c.Locality.Node = ""
	}
	return c
}

func (r *rule) fits(service string) bool {
	for _, pattern := range r.Services {
		if ok, err := path.Match(pattern, service); ok && err == nil {
			return true
		}
	}
	return len(r.Services) == 0
}

// section is the key of the file's part about balancing.
const section = "balance:"

// split takes the part about balancing out of a file of policies. Lines keep their
// numbers on both sides.
func split(name string, text []byte) (policies []byte, found rules, err error) {
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

// located says where a mistake is, as the errors of policies do: yaml's errors have
// the line within.
func located(name string, err error) error {
	_, where, ok := strings.Cut(err.Error(), "line ")
	line, what, is := strings.Cut(where, ": ")
	if !ok || !is {
		return fmt.Errorf("%s: %w", name, err)
	}
	what, _, _ = strings.Cut(what, " in type ")
	return fmt.Errorf("%s:%s: balance: %s", name, line, what)
}

func parseRules(text []byte) (rules, error) {
	var file struct {
		Balance rules `yaml:"balance"`
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

// check tries the configuration.
func (r *rule) check() error {
	for _, pattern := range r.Services {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("services: %q is no pattern", pattern)
		}
	}
	p, err := balance.New(r.Config)
	if err == nil {
		p.Update(nil, time.Time{})
	}
	return err
}
