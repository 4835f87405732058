package datadir

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
)

// Issue 11, attack 9: another user makes the data folder beforehand.
func TestCheck(t *testing.T) {
	tests := map[string]struct {
		prepare func(path string) error
		want    string // of the error; "": none
	}{
		"own":            {func(path string) error { return os.Mkdir(path, 0o700) }, ""},
		"read by others": {func(path string) error { return os.Mkdir(path, 0o755) }, ""},
		"a file":         {func(path string) error { return os.WriteFile(path, nil, 0o600) }, "no folder"},
		"group writes": {func(path string) error {
			return errorsOf(os.Mkdir(path, 0o700), os.Chmod(path, 0o770))
		}, "mode 0770"},
		"all write": {func(path string) error {
			return errorsOf(os.Mkdir(path, 0o700), os.Chmod(path, 0o777))
		}, "mode 0777"},
		"a link to one that all write": {func(path string) error {
			return errorsOf(os.Mkdir(path+"2", 0o700), os.Chmod(path+"2", 0o777), os.Symlink(path+"2", path))
		}, "mode 0777"},
		"another user's": {func(path string) error {
			if os.Geteuid() != 0 {
				t.Log("not root: the owner can't be changed")
				return errorsOf(os.Mkdir(path, 0o700), os.Chmod(path, 0o770))
			}
			return errorsOf(os.Mkdir(path, 0o700), os.Chown(path, 4711, 4711))
		}, map[bool]string{true: "belongs to user 4711", false: "mode 0770"}[os.Geteuid() == 0]},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "data")
			if err := test.prepare(path); err != nil {
				t.Fatal(err)
			}
			err := Check(path)
			switch {
			case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want %q", err, test.want)
			case err != nil && outboard.KindOf(err) != outboard.Denied && outboard.KindOf(err) != outboard.Invalid:
				t.Errorf("kind %v", outboard.KindOf(err))
			}
		})
	}
}

func errorsOf(all ...error) error {
	for _, err := range all {
		if err != nil {
			return err
		}
	}
	return nil
}
