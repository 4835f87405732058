package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// A restart without flags has the settings of the start before it: every flag of `up` is a setting, and
// all are remembered but those that belong to one start.
func TestSettingsAreRemembered(t *testing.T) {
	given := map[string]string{
		"name": "harbour", "listen": "127.0.0.1:7500", "advertise": "harbour:7500", "routes": "127.0.0.1:7600", "devices": "type=gpu",
		"grpc": "none", "http": "127.0.0.1:9000", "http-host": "a.example,b.example", "models": "none", "models-shm": "true",
		"model-servers": "servers.yaml", "client-timeout": "45s", "nats": "nats://a:4222", "creds": "pool.creds",
		"replace-keeper-after": "1h0m0s", "lease-ttl": "20s", "sandbox": "require=seccomp;memory=1500MiB",
		"tenant-limits": "requests=1234567B;store=1GiB", "outgoing-private": "10.1.0.0/16,127.0.0.1:9000",
		"max-executions": "12", "max-calls": "99", "slow-call": "2s", "probe-budget": "1000001", "jobs": "confined", "objects": "s3://b/p",
	}
	data := t.TempDir()
	env := &Env{Environ: []string{"HOME=" + data}}
	resolve := func(args ...string) (*settings, *pflag.FlagSet) {
		t.Helper()
		s := &settings{data: data}
		flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
		flags.StringVar(&s.data, "data", data, "")
		new(upOptions).addFlags(flags)
		if err := flags.Parse(args); err != nil {
			t.Fatal(err)
		}
		if err := s.resolve(env, flags); err != nil {
			t.Fatal(err)
		}
		return s, flags
	}
	var args []string
	for name, value := range given {
		args = append(args, "--"+name+"="+value)
	}
	s, first := resolve(args...)
	if err := s.remember(first); err != nil {
		t.Fatal(err)
	}
	_, again := resolve()
	again.VisitAll(func(f *pflag.Flag) {
		switch f.Name {
		case "data", "join", "token", "log-level":
			return
		}
		if _, ok := given[f.Name]; !ok {
			t.Errorf("the test gives no --%s", f.Name)
		}
		if got, want := settingText(f), settingText(first.Lookup(f.Name)); got != want {
			t.Errorf("--%s is %q after a restart, was %q", f.Name, got, want)
		}
	})
	text, err := os.ReadFile(filepath.Join(data, rememberedFile))
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(wd(t), "pool.creds"); !strings.Contains(string(text), want) {
		t.Errorf("the credentials are not %s in\n%s", want, text)
	}
}

// After a downgrade a node starts although node.yaml has a setting that only the later version knows,
// and keeps that setting for the later version. In a configuration file such a line is a mistake.
func TestSettingsOfAnotherVersionAreKept(t *testing.T) {
	data := t.TempDir()
	file := filepath.Join(data, rememberedFile)
	text := "name: harbour\nzeal: \"9\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	env := &Env{Environ: []string{"HOME=" + data}, Stderr: &out}
	s := &settings{data: data}
	flags := pflag.NewFlagSet("up", pflag.ContinueOnError)
	flags.StringVar(&s.data, "data", data, "")
	new(upOptions).addFlags(flags)
	if err := s.resolve(env, flags); err != nil {
		t.Fatal(err)
	}
	if name := flags.Lookup("name").Value.String(); name != "harbour" || !strings.Contains(out.String(), "ignores: zeal\n") {
		t.Errorf("name %q, output %q", name, out.String())
	}
	if err := s.remember(flags); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(got), text) {
		t.Errorf("node.yaml is %q afterwards, %v", got, err)
	}
	s.file = file
	if err := s.resolve(env, flags); err == nil || !strings.Contains(err.Error(), `line 3: unknown setting "zeal"`) {
		t.Errorf("as a configuration file: %v", err)
	}
}

func wd(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// The flag of another command is no setting because a setting has its name.
func TestFlagsOfOtherCommandsAreNoSettings(t *testing.T) {
	env := &Env{Environ: []string{"HOME=" + t.TempDir(), "OUTBOARD_MODELS=127.0.0.1:9000"}}
	s := &settings{data: t.TempDir()}
	flags := pflag.NewFlagSet("keys create", pflag.ContinueOnError)
	flags.StringVar(&s.data, "data", s.data, "")
	models := flags.StringSlice("models", nil, "")
	if err := s.resolve(env, flags); err != nil {
		t.Fatal(err)
	}
	if len(*models) > 0 {
		t.Errorf("the flag is %q", *models)
	}
}
