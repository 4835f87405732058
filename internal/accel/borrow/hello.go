package borrow

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/outboard-run/outboard"
)

// The exchange that begins a program's connection, little-endian:
//
//	program  8 bytes magic, u32 process id, u32 number of the lease, 16 bytes 0
//	answer   u32 status: 0, or 1 + an outboard.Kind
//	         u32 number of leases, u64 memory limit in bytes, u32 dead-after in ms,
//	         u32 length of the error's text, 40 bytes 0
//	         the text
//
// The ring's memory comes with the answer's first byte when the status is 0.
const (
	helloMagic  = "OBSESS1\x00"
	helloSize   = 32
	welcomeSize = 64
	maxText     = 4096
)

// hello is a process's request for a session.
type hello struct {
	PID   uint32
	Lease uint32
}

func parseHello(b []byte) (hello, error) {
	switch {
	case len(b) != helloSize || string(b[:8]) != helloMagic:
		return hello{}, outboard.Errorf(outboard.Protocol, "hello", "not the magic of this version: the program has another build's driver library")
	case !bytes.Equal(b[16:], make([]byte, helloSize-16)):
		return hello{}, outboard.Errorf(outboard.Protocol, "hello", "reserved bytes are set")
	}
	return hello{PID: binary.LittleEndian.Uint32(b[8:]), Lease: binary.LittleEndian.Uint32(b[12:])}, nil
}

// welcome is the answer to a hello.
type welcome struct {
	Leases    int
	Memory    outboard.Bytes
	DeadAfter time.Duration
	Err       error
}

func (w welcome) marshal() []byte {
	b := make([]byte, welcomeSize)
	if w.Err != nil {
		binary.LittleEndian.PutUint32(b[0:], uint32(outboard.KindOf(w.Err))+1)
		text := w.Err.Error()
		text = text[:min(len(text), maxText)]
		binary.LittleEndian.PutUint32(b[20:], uint32(len(text)))
		b = append(b, text...)
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(w.Leases))
	binary.LittleEndian.PutUint64(b[8:], uint64(w.Memory))
	binary.LittleEndian.PutUint32(b[16:], uint32(w.DeadAfter.Milliseconds()))
	return b
}

// parseWelcome decodes the fixed part of a welcome, and returns the length of its text.
func parseWelcome(b []byte) (w welcome, kind outboard.Kind, text int, err error) {
	if len(b) != welcomeSize {
		return w, 0, 0, fmt.Errorf("welcome of %d bytes", len(b))
	}
	w.Leases = int(binary.LittleEndian.Uint32(b[4:]))
	w.Memory = outboard.Bytes(binary.LittleEndian.Uint64(b[8:]))
	w.DeadAfter = time.Duration(binary.LittleEndian.Uint32(b[16:])) * time.Millisecond
	status, text := binary.LittleEndian.Uint32(b[0:]), int(binary.LittleEndian.Uint32(b[20:]))
	if text > maxText || status == 0 && text > 0 || status > 1<<16 {
		return w, 0, 0, fmt.Errorf("welcome with status %d and a text of %d bytes", status, text)
	}
	if status == 0 {
		return w, 0, 0, nil
	}
	return w, outboard.Kind(status - 1), text, nil
}
