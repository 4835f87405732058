package overhead

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// A call that is no transfer begins when all of its bytes have arrived: the driver needs all of a
// program. A write is executed while it arrives.
func TestExecutionBeginsWithAllOfAProgram(t *testing.T) {
	const size, work, transfer = 4_000_000, 20 * time.Millisecond, 32 * time.Millisecond
	link, o := Link{Up: 1e9, Down: 1e9}, Options{Constants: zero()}
	made := newProgram()
	r := made.call(opCreate, trace.WaitedFor, 0, work)
	r.Forward = size
	within(t, "a program", predictOne(t, made.exit(0), link, o), transfer+work, time.Millisecond)

	written := newProgram()
	written.enqueue(opWrite, size, 0, work, 0)
	written.finish(0)
	within(t, "a write", predictOne(t, written.exit(0), link, o), transfer, time.Millisecond)
}

// A read is sent in pieces, each after the device has copied it, or as a whole if another thread of the
// program could wait for something else meanwhile.
func TestReadsAreSentInPieces(t *testing.T) {
	const device, transfer = 8 * time.Millisecond, 8 * time.Millisecond
	link, o := Link{Up: 1e9, Down: 1e9}, Options{Constants: zero()}
	for name, c := range map[string]struct {
		bytes   uint64
		threads int
		want    time.Duration
	}{
		"one piece":                     {pieceSize, 1, device + transfer/2},
		"two pieces":                    {2*pieceSize - 1000, 1, device/2 + transfer},
		"of a program with two threads": {2*pieceSize - 1000, 2, device + transfer},
		"large":                         {2 * pieceSize, 2, device/2 + transfer},
	} {
		p := newProgram()
		if c.threads > 1 {
			p.info(0)
			p.records[0].Thread = 1
		}
		p.read(c.bytes, 0, device)
		within(t, name, predictOne(t, p.exit(0), link, o), c.want, time.Millisecond/2)
	}
}
