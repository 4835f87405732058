package node

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

func TestFolderHasOneUser(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	first, err := openFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openFolder(path); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("got %v, want Conflict", err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := openFolder(path)
	if err != nil {
		t.Fatalf("got %v, want the folder to be free", err)
	}
	_ = second.Close()
}

func TestOffer(t *testing.T) {
	probed := []outboard.Device{
		{API: outboard.OpenCL, Type: outboard.CPU, Name: "a"},
		{API: outboard.OpenCL, Type: outboard.GPU, Name: "b"},
	}
	gpus, err := outboard.ParseSelector("type=gpu")
	if err != nil {
		t.Fatal(err)
	}
	want := []offeredDevice{{
		Device: outboard.Device{ID: "harbour/opencl/1", Node: "harbour", API: outboard.OpenCL, Type: outboard.GPU, Name: "b"},
		index:  1,
	}}
	if diff := cmp.Diff(want, offerDevices("harbour", probed, gpus.Match), cmp.AllowUnexported(offeredDevice{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestProbe(t *testing.T) {
	script := func(text string) []string {
		path := filepath.Join(t.TempDir(), "helper")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return []string{path, "internal"}
	}
	tests := map[string]struct {
		helper []string
		want   []outboard.Device
		err    string
	}{
		"devices": {
			helper: script(`test "$*" = "internal probe opencl" && echo '[{"api":"opencl","name":"x","memory":1024}]'`),
			want:   []outboard.Device{{API: outboard.OpenCL, Name: "x", Memory: 1024}},
		},
		"crash":    {helper: script("echo the driver broke >&2; kill -SEGV $$"), err: "the driver broke"},
		"nonsense": {helper: script("echo hello"), err: "invalid character"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := probe(context.Background(), test.helper)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
		})
	}
}
