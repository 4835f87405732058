package artifact

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"
)

// zeros are endless.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestReceive: the file and the digest are those of the content, whatever its size is beside that of
// the blocks, and however it arrives.
func TestReceive(t *testing.T) {
	for _, size := range []int{0, 1, blockSize - 1, blockSize, blockSize + 1, (maxBlocks+2)*blockSize + 7} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(i * 31 >> 8)
		}
		for name, r := range map[string]io.Reader{
			"whole":           bytes.NewReader(content),
			"in halves":       iotest.HalfReader(bytes.NewReader(content)),
			"data with error": iotest.DataErrReader(bytes.NewReader(content)),
		} {
			f, err := os.Create(filepath.Join(t.TempDir(), "f"))
			if err != nil {
				t.Fatal(err)
			}
			digest, n, err := receive(f, r)
			if err != nil || n != int64(size) || digest != Digest(content) {
				t.Errorf("%d bytes, %s: %d bytes with digest %s, %v", size, name, n, digest, err)
			}
			if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d bytes, %s: the file has %d bytes, %v", size, name, len(got), err)
			}
			_ = f.Close()
		}
	}
}

// TestReceiveFails: a source that ends early, and a disk that takes no more, are errors.
func TestReceiveFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	early := io.MultiReader(bytes.NewReader(make([]byte, 100)), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, _, err := receive(f, early); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a source that ends early: %v", err)
	}
	readOnly, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if _, _, err := receive(readOnly, zeros{}); err == nil {
		t.Error("a file that cannot be written was received")
	}
}
