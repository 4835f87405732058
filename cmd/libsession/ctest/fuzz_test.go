package ctest_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/session"
)

// message is a message as a worker would write it.
func message(op, flags uint16, call uint32, serial uint64, body, bulk []byte) []byte {
	b := make([]byte, session.HeaderSize)
	binary.LittleEndian.PutUint32(b, uint32(session.HeaderSize+len(body)))
	binary.LittleEndian.PutUint16(b[4:], op)
	binary.LittleEndian.PutUint16(b[6:], flags)
	binary.LittleEndian.PutUint32(b[8:], call)
	binary.LittleEndian.PutUint64(b[16:], uint64(len(bulk)))
	binary.LittleEndian.PutUint64(b[24:], serial)
	return append(append(b, body...), bulk...)
}

// FuzzHostileWorker: whatever a worker says, the program's side ends the session or
// goes on, and neither crashes nor hangs. Each input costs a process.
func FuzzHostileWorker(f *testing.F) {
	program(f) // before an input is timed
	answer := message(opEcho, session.IsReply, 1, 1, words(7), nil)
	f.Add(answer)
	f.Add(append(message(opNotice, 0, 0, 1, words(1, 2), nil), message(opEcho, session.IsReply, 1, 2, nil, nil)...))
	f.Add(message(opData, 0, 0, 1, words(5, 0), pattern(24)))
	f.Add(message(opNotice, 0, 0, 1, words(3), pattern(4096)))
	f.Add(answer[:20])
	f.Add([]byte(strings.Repeat("\xff", 200)))
	f.Fuzz(func(t *testing.T, junk []byte) {
		s := listen(t, 64<<10)
		s.junk.Store(junk)
		if o := s.run("death", "10", "12", "0"); strings.Contains(o.err, "ERROR: ") || strings.Contains(o.err, "runtime error") || o.crashed() {
			t.Errorf("%q: %v\n%s\n%s", junk, o.failed, o.out, o.err)
		}
	})
}
