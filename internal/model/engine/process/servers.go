package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
)

// A Server is the definition of a model server, by the operator of a node.
type Server struct {
	// Kind is the interface that the server speaks: "llama-server" or "vllm".
	Kind string `yaml:"kind"`
	// Command starts the server; {port}, {model}, {folder}, {context}, {sequences} and {threads}
	// stand for values. URL is the address of a running server. Exactly one of them is set.
	Command []string `yaml:"command"`
	URL     string   `yaml:"url"`
	// Environment are additional environment variables of the command.
	Environment map[string]string `yaml:"environment"`
}

// maxServers bounds a file of definitions, in bytes.
const maxServers = 64 << 10

// ReadServers reads a file of definitions, a mapping from names.
func ReadServers(path string) (map[string]Server, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseServers(path, text)
}

func parseServers(path string, text []byte) (map[string]Server, error) {
	if len(text) > maxServers {
		return nil, outboard.Errorf(outboard.Invalid, path, "it has %d bytes, at most %d are allowed", len(text), maxServers)
	}
	var list map[string]Server
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, outboard.Errorf(outboard.Invalid, path, "%w", err)
	}
	for name, s := range list {
		if err := s.validate(); err != nil {
			return nil, outboard.Errorf(outboard.Invalid, path, "server %s: %w", name, err)
		}
	}
	return list, nil
}

func (s *Server) validate() error {
	if _, known := dialects[s.Kind]; !known {
		return fmt.Errorf("kind %q: want llama-server or vllm", s.Kind)
	}
	if (len(s.Command) > 0) == (s.URL != "") {
		return errors.New("want either a command or a url")
	}
	if s.URL == "" && !slices.ContainsFunc(s.Command, func(a string) bool { return strings.Contains(a, "{port}") }) {
		return errors.New("the command has no {port}, where the server listens on 127.0.0.1")
	}
	if s.URL != "" {
		if u, err := url.Parse(s.URL); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("url %q: want one like http://127.0.0.1:8000", s.URL)
		}
	}
	return nil
}
