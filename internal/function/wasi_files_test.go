package function

import (
	"errors"
	"strings"
	"testing"
)

// TestTemporaryFiles uses files as programs in Go do, which find an empty directory in each call.
func TestTemporaryFiles(t *testing.T) {
	f := deploy(t, open(t, Options{}), goGuest(t, "files"), Limits{})
	tests := []struct{ request, want string }{
		{"use", ""},
		{"multipart 3000000", "3000000"},
		{"keep", "0 4"},
		{"keep", "0 4"},
		{"use", ""},
	}
	for _, test := range tests {
		if got, err := call(t, f, test.request); err != nil || got != test.want {
			t.Errorf("%s: got %q, %v; want %q", test.request, got, err, test.want)
		}
		checkFresh(t, f)
	}
}

// TestFilesOfOthers opens files that a function does not have.
func TestFilesOfOthers(t *testing.T) {
	f := deploy(t, open(t, Options{}), goGuest(t, "files"), Limits{})
	tests := map[string]string{
		"read /etc/passwd":           "No such file or directory",
		"read /tmp/../../etc/passwd": "No such file or directory",
		"read ../../etc/passwd":      "No such file or directory",
		"create /data":               "Read-only file system",
		"create data":                "Read-only file system",
		"create /tmp/a/b":            "No such file or directory",
		"read /tmp":                  "Is a directory",
	}
	for request, want := range tests {
		if got, err := call(t, f, request); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %q, %v; want %q", request, got, err, want)
		}
	}
}

// TestFilesAreMemory writes more to files than the function's limit of memory leaves.
func TestFilesAreMemory(t *testing.T) {
	f := deploy(t, open(t, Options{}), goGuest(t, "files"), Limits{Memory: 32 << 20})
	for range 3 { // what a call wrote is released
		if _, err := call(t, f, "fill 16000000"); err != nil {
			t.Error(err)
		}
	}
	_, err := call(t, f, "fill 33000000")
	if failed, ok := errors.AsType[*FailedError](err); !ok || !strings.Contains(failed.Error(), "No space left on device") {
		t.Errorf("got %v", err)
	}
	// The memory cannot grow by what files occupy.
	s, err := newSlot(f.version, f.version.image)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if !s.memory.reserveFiles(int64(s.memory.total - s.memory.size - wasmPage)) {
		t.Fatal("no space for files")
	}
	if _, ok := s.instance.Memory().Grow(2); ok {
		t.Error("the memory grew beyond the limit")
	}
	if _, ok := s.instance.Memory().Grow(1); !ok {
		t.Error("the memory did not grow up to the limit")
	}
}
