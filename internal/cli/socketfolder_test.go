package cli

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
)

func TestSocketFolderSweepsTheDead(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "cli-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	env := &Env{Environ: []string{"XDG_RUNTIME_DIR=" + base}}
	first, err := newSocketFolder(env)
	if err != nil {
		t.Fatal(err)
	}
	defer first.remove()
	dead, err := newSocketFolder(env)
	if err != nil {
		t.Fatal(err)
	}
	_ = dead.lock.Close() // as the end of its process would
	third, err := newSocketFolder(env)
	if err != nil {
		t.Fatal(err)
	}
	defer third.remove()
	if _, err := os.Stat(dead.path); !os.IsNotExist(err) {
		t.Errorf("got %v, want the dead one gone", err)
	}
	if _, err := os.Stat(first.path); err != nil {
		t.Errorf("the living one is gone: %v", err)
	}
	if want := filepath.Join(base, "outboard-"+strconv.Itoa(os.Geteuid())); filepath.Dir(third.path) != want {
		t.Errorf("got %s, want it in %s", third.path, want)
	}
}

func TestSocketFoldersAtOnce(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "cli-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	env := &Env{Environ: []string{"XDG_RUNTIME_DIR=" + base}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				f, err := newSocketFolder(env)
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := os.Stat(f.path); err != nil {
					t.Error(err)
				}
				f.remove()
			}
		})
	}
	all.Wait()
}

func TestSocketFolderIsOnesOwn(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "cli-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(base)
	home := filepath.Join(base, "outboard-"+strconv.Itoa(os.Geteuid()))
	if err := os.Mkdir(home, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o777); err != nil {
		t.Fatal(err)
	}
	f, err := newSocketFolder(&Env{Environ: []string{"XDG_RUNTIME_DIR=" + base}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.remove()
	if filepath.Dir(f.path) == home {
		t.Errorf("got %s, in a folder that others may write to", f.path)
	}
}
