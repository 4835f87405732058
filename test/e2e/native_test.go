package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// native compiles programs of testdata, each once.
var native struct {
	sync.Mutex
	built map[string]error
}

// compiled is the path of a program of testdata, compiled with the given parts
// of cltest.
func compiled(t testing.TB, name string, parts ...string) string {
	t.Helper()
	need.Program(t, "cc")
	native.Lock()
	defer native.Unlock()
	path := filepath.Join(scratch(), name)
	err, known := native.built[name]
	if !known {
		err = compile(path, name, parts)
		if native.built == nil {
			native.built = map[string]error{}
		}
		native.built[name] = err
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func compile(path, name string, parts []string) error {
	const shared = "../../internal/accel/opencl/cltest/c"
	args := []string{"-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I", shared, "-o", path, "testdata/" + name + ".c"}
	for _, part := range parts {
		args = append(args, filepath.Join(shared, part))
	}
	out, err := exec.Command("cc", append(args, "-lOpenCL", "-lpthread")...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("cc %s: %w: %s", name, err, out)
	}
	return nil
}
