package profile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const written = `{"version":1,"passes":3,"where":{"seconds":0.5,"forward":0.1,"backward":0.2,"communication":0.3,"loading":0.05},
"layers":[{"name":"0:Linear","parameters":40,"output":8,"stored":8,"forward":0.1,"backward":0.2}],
"memory":{"peak":1000,"parameters":40},"traceEvents":[]}`

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "profile.json")
	if err := os.WriteFile(path, []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if l := p.Layers[0]; len(p.Layers) != 1 || l.Name != "0:Linear" || l.Parameters != 40 || l.Backward != 0.2 {
		t.Errorf("got %+v", p.Layers)
	}
	if got := p.Where.Other(); got < 0.149 || got > 0.151 {
		t.Errorf("the rest of the pass is %v, want 0.15", got)
	}
}

func TestProfilesThatAreRefused(t *testing.T) {
	for want, text := range map[string]string{
		"no profile":     written[:100],
		"version 2":      strings.Replace(written, `"version":1`, `"version":2`, 1),
		"without layers": `{"version":1}`,
		"forward is -1":  strings.Replace(written, `"forward":0.1,"backward":0.2,"comm`, `"forward":-1,"backward":0.2,"comm`, 1),
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(written)
	f.Add(`{"version":1,"layers":[{}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Read(strings.NewReader(text)); err == nil && (len(p.Layers) == 0 || p.Version != Version) {
			t.Errorf("accepted %+v", p)
		}
	})
}
