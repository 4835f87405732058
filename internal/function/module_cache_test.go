package function

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outboard-run/outboard/internal/function/optimize"
)

func TestKept(t *testing.T) {
	parent := t.TempDir()
	other := filepath.Join(parent, cachePrefix+"other")
	if err := os.Mkdir(other, 0o700); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	k, err := openModuleCache(parent, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(other); !os.IsNotExist(err) {
		t.Errorf("another build's modules are still there: %v", err)
	}
	module := puppet(puppetWindow)
	metered := checkKept(t, k, module, false)
	if unmetered := checkKept(t, k, module, true); unmetered.Checks != 0 || metered.Checks == 0 {
		t.Errorf("%d checks with a meter, %d without", metered.Checks, unmetered.Checks)
	}
	files, err := filepath.Glob(filepath.Join(k.dir, "*"))
	if err != nil || len(files) != 2 {
		t.Fatalf("kept %v, %v", files, err)
	}
	for _, file := range files {
		if err := os.Truncate(file, 40); err != nil {
			t.Fatal(err)
		}
	}
	checkKept(t, k, module, false)
	if n := strings.Count(log.String(), "its checksum is wrong"); n != 1 {
		t.Errorf("logged:\n%s", log.String())
	}
	if _, err := k.load([]byte("mud"), false); err == nil {
		t.Error("mud was rewritten")
	}
}

// checkKept expects a module to be what the rewriter makes of it, the first time and when
// it comes from a file, and the file not to be written again.
func checkKept(t *testing.T, k *moduleCache, module []byte, unmetered bool) *optimize.Result {
	t.Helper()
	want, err := optimize.Module(module, optimize.Options{Unmetered: unmetered})
	if err != nil {
		t.Fatal(err)
	}
	var written []os.FileInfo
	for range 2 {
		got, err := k.load(module, unmetered)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, want, cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
		files, err := os.ReadDir(k.dir)
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, infoOf(t, files, unmetered))
	}
	if !os.SameFile(written[0], written[1]) {
		t.Error("the module was rewritten again")
	}
	return want
}

// infoOf is of the file that has a module.
func infoOf(t *testing.T, files []os.DirEntry, unmetered bool) os.FileInfo {
	t.Helper()
	for _, f := range files {
		if strings.HasSuffix(f.Name(), "-unmetered") == unmetered {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			return info
		}
	}
	t.Fatalf("no file among %v", files)
	return nil
}

func TestSweep(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	const day = 24 * time.Hour
	want := []string{"changed lately", "read lately"}
	for name, ages := range map[string][2]time.Duration{
		"changed lately": {40 * day, 20 * day}, "read lately": {20 * day, 40 * day}, "unused": {40 * day, 50 * day},
	} {
		file := filepath.Join(dir, "compiled", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600),
			os.Chtimes(file, now.Add(-ages[0]), now.Add(-ages[1]))); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnused(dir, now); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(filepath.Join(dir, "compiled"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Name())
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
}
