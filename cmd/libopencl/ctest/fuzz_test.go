package ctest_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// decoder is a process that decodes, with sanitizers.
type decoder struct {
	mu     sync.Mutex
	in     io.WriteCloser
	out    io.Reader
	stderr bytes.Buffer
}

func startDecoder(f *testing.F) *decoder {
	f.Helper()
	session, err := filepath.Glob("../../libsession/[rs]*/*.c")
	if err != nil {
		f.Fatal(err)
	}
	program := objects.link(f, append(session, "testdata/decode.c", "../objects/facts.c", "../objects/info.c", "../objects/zz_send.c"))
	d := &decoder{}
	cmd := exec.Command(program)
	cmd.Stderr = &d.stderr
	if d.in, err = cmd.StdinPipe(); err == nil {
		d.out, err = cmd.StdoutPipe()
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = d.in.Close()
		_ = cmd.Wait()
	})
	return d
}

// decode gives the process an input and waits for its answer.
func (d *decoder) decode(t *testing.T, input []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	head := binary.LittleEndian.AppendUint32(nil, uint32(len(input)))
	_, err := d.in.Write(append(head, input...))
	if err == nil {
		_, err = io.ReadFull(d.out, make([]byte, 1))
	}
	if err != nil {
		t.Fatalf("%q: %v\n%s", input, err, strings.TrimSpace(d.stderr.String()))
	}
}

func words(v ...uint64) []byte {
	var b []byte
	for _, w := range v {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// FuzzWorkerWords: whatever a worker says in a notice is decoded or refused, and
// nothing outside of it is read.
func FuzzWorkerWords(f *testing.F) {
	d := startDecoder(f)
	fact := append(words(1, 2, 3, 8<<32), words(7)...) // a head, and a value of 8 bytes
	f.Add(append([]byte{0}, append(words(1<<30, uint64(len(fact))), fact...)...))
	f.Add(append([]byte{1}, words(1, 2, 3, 4, 5, 6)...))
	f.Add(append([]byte{2}, words(1, 0, 5, 1, 2, 3, 4, 5)...))
	f.Add(append([]byte{3}, words(1, 0)...))
	f.Add(append([]byte{4}, append(words(5), "hello\x00\x00\x00"...)...))
	f.Add(append([]byte{5}, words(1, 8, 7, 8, 9)...))
	f.Add(append([]byte{6}, append(fact, fact...)...))
	f.Add(append([]byte{2}, words(1, 0, 1<<61)...)) // its size in bytes is 8 times that
	f.Fuzz(func(t *testing.T, input []byte) { d.decode(t, input) })
}
