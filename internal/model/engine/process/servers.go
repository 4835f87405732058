package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/yamlerror"
)

// A Server is the definition of a model server, by the operator of a node.
type Server struct {
	// Kind is the interface that the server speaks: "llama-server", "vllm", "sglang", or "oip" for the
	// Open Inference Protocol.
	Kind string `yaml:"kind"`
	// Command starts the server; {port}, {port2}, {port3}, {model}, {folder}, {repository}, {context},
	// {sequences} and {threads} stand for values. URL is the address of a running server. Exactly one
	// of them is set.
	Command []string `yaml:"command"`
	URL     string   `yaml:"url"`
	// Environment are additional environment variables of the command, with the same placeholders.
	Environment map[string]string `yaml:"environment"`
	// Model is the server's name of the model, for the kind "oip". Without it the server must list
	// its models, and have only one.
	Model string `yaml:"model"`
}

// schemeOf returns the scheme of the addresses of a kind of servers, which for TLS is followed by "s".
func schemeOf(kind string) string {
	if kind == kindOIP {
		return "grpc"
	}
	return "http"
}

// kindOIP is the kind of the servers of the Open Inference Protocol.
const kindOIP = "oip"

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

// types describes the types of a file of definitions.
//
//nolint:gochecknoglobals // a table
var types = map[string]yamlerror.Type{
	"string": {Want: "a text"}, "[]string": {Want: "a list, such as `[vllm, --port, \"{port}\"]`"},
	"map[string]string":         {Want: "variables, such as `{A: b}`"},
	"process.Server":            {Want: "settings, such as `kind: vllm`"},
	"map[string]process.Server": {Want: "servers by their names, each with `kind` and `command` or `url`"},
}

func parseServers(path string, text []byte) (map[string]Server, error) {
	if len(text) > maxServers {
		return nil, outboard.Errorf(outboard.Invalid, path, "it has %d bytes, at most %d are allowed", len(text), maxServers)
	}
	var list map[string]Server
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&list); err != nil && !errors.Is(err, io.EOF) {
		return nil, outboard.Errorf(outboard.Invalid, "", "%s", yamlerror.Describe(path, err, types))
	}
	if line := yamlerror.SecondDocument(text); line > 0 {
		return nil, outboard.Errorf(outboard.Invalid, "", "%s:%d: a second document: its servers would be ignored", path, line)
	}
	for name, s := range list {
		if err := s.validate(); err != nil {
			return nil, outboard.Errorf(outboard.Invalid, path, "server %s: %w", name, err)
		}
	}
	return list, nil
}

func (s *Server) validate() error {
	_, isText := dialects[s.Kind]
	switch {
	case !isText && s.Kind != kindOIP:
		return fmt.Errorf("kind %q: want llama-server, vllm, sglang or oip", s.Kind)
	case (len(s.Command) > 0) == (s.URL != ""):
		return errors.New("want either a command or a url")
	case s.URL == "" && !s.contains(portNames[0]):
		return errors.New("the command has no {port}, where the server listens on 127.0.0.1")
	case strings.Contains(s.Model, "/") || s.Model == "." || s.Model == "..":
		return fmt.Errorf("model %q: want a name without /", s.Model)
	case isText && s.Model != "":
		return fmt.Errorf("model: a server of the kind %s has one model, which needs no name", s.Kind)
	}
	if s.URL == "" {
		return nil
	}
	scheme := schemeOf(s.Kind)
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != scheme && u.Scheme != scheme+"s" {
		return fmt.Errorf("url %q: want one like %s://127.0.0.1:8000", s.URL, scheme)
	}
	if s.Kind == kindOIP && (u.Port() == "" || strings.Trim(u.Path, "/") != "") {
		return fmt.Errorf("url %q: want one like grpc://127.0.0.1:8001, with the port of gRPC and without a path", s.URL)
	}
	return nil
}

// contains reports whether the command or its environment has a placeholder.
func (s *Server) contains(placeholder string) bool {
	has := func(a string) bool { return strings.Contains(a, placeholder) }
	return slices.ContainsFunc(s.Command, has) || slices.ContainsFunc(slices.Collect(maps.Values(s.Environment)), has)
}
