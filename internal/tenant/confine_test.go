package tenant

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// confinedEnv names the folder of a process that this test starts.
const confinedEnv = "OUTBOARD_TEST_CONFINED"

// runConfined is that process: it enters its confinement and says what it can still read and
// write of the node's.
func runConfined(dir string) {
	c, err := inheritConfig()
	if c == nil && err == nil {
		c = &Config{Tenant: "tea", Dir: filepath.Join(dir, "tea"), Artifacts: filepath.Join(dir, "artifacts")}
		err = c.confine(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	}
	if err != nil {
		fmt.Println("confine:", err)
		os.Exit(1)
	}
	_, err = os.ReadFile(filepath.Join(dir, "node", "key"))
	fmt.Println("key:", err)
	fmt.Println("write:", os.WriteFile(filepath.Join(dir, "node", "planted"), nil, 0o600))
	_, err = os.ReadFile(filepath.Join(c.Artifacts, "module"))
	fmt.Println("artifact:", err)
	fmt.Println("replace:", os.WriteFile(filepath.Join(c.Artifacts, "module"), nil, 0o600), os.Remove(filepath.Join(c.Artifacts, "module")))
	_, err = os.OpenFile("/dev/tty", os.O_RDWR, 0)
	fmt.Println("terminal:", err)
	fmt.Println("own:", os.WriteFile(filepath.Join(c.compiledDir(), "module"), nil, 0o600))
	os.Exit(0)
}

// A guest that broke out replaces a folder of its process by a link to the node's. The process
// that is started next does not follow it, and its confinement does not allow what it leads to.
func TestPlantedLink(t *testing.T) {
	for _, planted := range []string{"compiled", "values", "owners"} {
		t.Run(planted, func(t *testing.T) {
			dir := t.TempDir()
			for _, d := range []string{"node", "tea", "artifacts"} {
				if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"node/key", "artifacts/module"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Symlink(filepath.Join(dir, "node"), filepath.Join(dir, "tea", planted)); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), os.Args[0])
			cmd.Env = append(os.Environ(), confinedEnv+"="+dir)
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if strings.Contains(string(text), "can reach the files") {
				t.Skip("this kernel has no Landlock")
			}
			for _, want := range []string{"a guest may have broken out", "key: open", "write: open", "terminal: open /dev/tty: permission denied", "own: <nil>", "artifact: <nil>", "replace: open"} {
				if !strings.Contains(string(text), want) {
					t.Errorf("no %q in:\n%s", want, text)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "node", "planted")); err == nil {
				t.Error("it wrote into the node's folder")
			}
			if text, err := os.ReadFile(filepath.Join(dir, "artifacts", "module")); err != nil || string(text) != "secret" {
				t.Errorf("another tenant's module: %q, %v", text, err)
			}
		})
	}
}
