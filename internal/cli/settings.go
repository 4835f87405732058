package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/yamlerror"
)

// settingNames are the flags that the environment and the configuration file can also set: the
// flag "dead-after" is OUTBOARD_DEAD_AFTER and `dead-after:`. They are all flags of `outboard up`, and
// those of `outboard run` that belong to a machine rather than to a program.
var settingNames = []string{
	"data", "name", "listen", "advertise", "routes", "devices", "join", "token",
	"grpc", "http", "http-host", "models", "models-shm", "model-servers", "client-timeout",
	"nats", "creds", "replace-keeper-after", "lease-ttl", "sandbox", "tenant-limits", "outgoing-private",
	"max-executions", "max-calls", "slow-call", "probe-budget", "jobs", "objects", "log-level", "timeout", "dead-after",
}

// forgottenNames are the settings that a node does not store in its data folder. It stores the others,
// so that a restart needs no flags.
var forgottenNames = []string{"data", "join", "token", "log-level", "timeout", "dead-after"}

func isRemembered(name string) bool {
	return slices.Contains(settingNames, name) && !slices.Contains(forgottenNames, name)
}

// settingAnnotation marks the flags that are settings. Flags of other commands may have their names:
// `outboard keys create --models` names no address.
const settingAnnotation = "outboard_setting"

// markSettings marks the flags of a set that are settings.
func markSettings(flags *pflag.FlagSet) {
	flags.VisitAll(func(f *pflag.Flag) {
		if slices.Contains(settingNames, f.Name) {
			if f.Annotations == nil {
				f.Annotations = map[string][]string{}
			}
			f.Annotations[settingAnnotation] = nil
		}
	})
}

// settingOf returns the flag of a setting, nil where a command has none.
func settingOf(flags *pflag.FlagSet, name string) *pflag.Flag {
	flag := flags.Lookup(name)
	if flag == nil {
		return nil
	}
	if _, marked := flag.Annotations[settingAnnotation]; !marked && name != "data" {
		return nil
	}
	return flag
}

const (
	envPrefix      = "OUTBOARD_"
	rememberedFile = "node.yaml"
)

// settings holds the sources of values besides flags.
type settings struct {
	data string
	file string
	// sources maps each setting of the command to the source of its value.
	sources map[string]string
	// foreign has the remembered settings that only another version of the program knows.
	foreign map[string]string
}

// fileValue is one line of a configuration file.
type fileValue struct {
	value string
	line  int
}

func envName(setting string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(setting, "-", "_"))
}

func defaultConfigFile(env *Env) string {
	if dir := env.getenv("XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "outboard", "outboard.yaml")
	}
	if home := env.getenv("HOME"); os.Geteuid() != 0 && home != "" {
		return filepath.Join(home, ".config", "outboard", "outboard.yaml")
	}
	return "/etc/outboard/outboard.yaml"
}

// resolve sets every flag that the command line does not set: from the environment, the
// configuration file, or the settings of the node's last start, in this order.
func (s *settings) resolve(env *Env, flags *pflag.FlagSet) error {
	file, err := s.readFile(env)
	if err != nil {
		return err
	}
	s.sources = map[string]string{}
	if err := s.resolveOne(env, flags, "data", file, nil); err != nil {
		return err
	}
	if s.data, err = filepath.Abs(s.data); err != nil {
		return err
	}
	s.foreign = map[string]string{} // node.yaml is also written by other versions
	remembered, err := readSettings(filepath.Join(s.data, rememberedFile), s.foreign)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && flags.Lookup("join") != nil {
		return err
	}
	if len(s.foreign) > 0 && flags.Lookup("join") != nil {
		printSafe(env.Stderr, "outboard: %s has settings that this version does not know and ignores: %s\n",
			filepath.Join(s.data, rememberedFile), strings.Join(slices.Sorted(maps.Keys(s.foreign)), ", "))
	}
	for _, name := range settingNames[1:] {
		if err := s.resolveOne(env, flags, name, file, remembered); err != nil {
			return err
		}
	}
	return nil
}

// readFile reads the configuration file. The default file need not exist.
func (s *settings) readFile(env *Env) (map[string]fileValue, error) {
	named := s.file != ""
	if !named {
		s.file = env.getenv(envName("config"))
		named = s.file != ""
	}
	if !named {
		s.file = defaultConfigFile(env)
	}
	values, err := readSettings(s.file, nil)
	if !named && errors.Is(err, fs.ErrNotExist) {
		s.file = ""
		return nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usage("configuration file %s: no such file", s.file)
	}
	return values, err
}

func (s *settings) resolveOne(env *Env, flags *pflag.FlagSet, name string, file, remembered map[string]fileValue) error {
	flag := settingOf(flags, name)
	if flag == nil {
		return nil
	}
	value, source := "", "default"
	if v, ok := remembered[name]; ok && isRemembered(name) {
		value, source = v.value, filepath.Join(s.data, rememberedFile)
	}
	if v, ok := file[name]; ok {
		value, source = v.value, fmt.Sprintf("%s:%d", s.file, v.line)
	}
	if v := env.getenv(envName(name)); v != "" {
		value, source = v, envName(name)
	}
	switch {
	case flag.Changed:
		source = "--" + name
	case source != "default":
		if err := flag.Value.Set(value); err != nil {
			return usage("%s: %s: %w", source, name, err)
		}
	}
	s.sources[name] = source
	return nil
}

// readSettings reads a flat YAML mapping of settings. Unknown keys are added to foreign, or refused if
// it is nil.
func readSettings(file string, foreign map[string]string) (map[string]fileValue, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	values, err := parseSettings(text, foreign)
	if err != nil {
		return nil, usage("%s: %w", file, err)
	}
	return values, nil
}

func parseSettings(text []byte, foreign map[string]string) (map[string]fileValue, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	values := map[string]fileValue{}
	if len(document.Content) == 0 {
		return values, nil
	}
	if line := yamlerror.SecondDocument(text); line > 0 {
		return nil, fmt.Errorf("line %d: a second document: its settings would be ignored", line)
	}
	mapping := document.Content[0]
	if mapping.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("line %d: want `setting: value` lines", mapping.Line)
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		key, value := mapping.Content[i], mapping.Content[i+1]
		known := slices.Contains(settingNames, key.Value)
		switch {
		case !known && foreign == nil:
			return nil, fmt.Errorf("line %d: unknown setting %q: use one of %s", key.Line, key.Value, strings.Join(settingNames, ", "))
		case value.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("line %d: %s: want one value", value.Line, key.Value)
		}
		if before, twice := values[key.Value]; twice {
			return nil, fmt.Errorf("line %d: %s: set in line %d already", key.Line, key.Value, before.line)
		}
		values[key.Value] = fileValue{value: value.Value, line: key.Line}
		if !known {
			foreign[key.Value] = value.Value
		}
	}
	return values, nil
}

// settingText returns the value of a flag as the flag reads it: a list without its brackets, a size that
// is not rounded, and a file as seen from any folder.
func settingText(flag *pflag.Flag) string {
	text := flag.Value.String()
	switch v := flag.Value.(type) {
	case pflag.SliceValue:
		text = strings.Join(v.GetSlice(), ",")
	case *outboard.Bytes:
		if rounded, err := outboard.ParseBytes(text); err != nil || rounded != *v {
			text = strconv.FormatInt(int64(*v), 10)
		}
	}
	if (flag.Name == "creds" || flag.Name == "model-servers") && text != "" {
		if path, err := filepath.Abs(text); err == nil {
			return path
		}
	}
	return text
}

// remember writes the settings that a restart of the node uses.
func (s *settings) remember(flags *pflag.FlagSet) error {
	values := map[string]string{}
	maps.Copy(values, s.foreign)
	for _, name := range settingNames {
		if flag := settingOf(flags, name); flag != nil && isRemembered(name) && s.sources[name] != "default" {
			values[name] = settingText(flag)
		}
	}
	text, err := yaml.Marshal(values)
	if err != nil {
		return err
	}
	text = append([]byte("# Written by `outboard up`: the settings of a restart without flags.\n"), text...)
	return replaceFile(filepath.Join(s.data, rememberedFile), text)
}

// replaceFile replaces a file so that a crash of the machine leaves the old or the new one.
func replaceFile(path string, text []byte) error {
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(path+".new"))
	}
	return os.Rename(path+".new", path)
}
