package compute

import (
	"encoding/binary"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/wire"
)

// factList is what a worker tells, being written.
type factList struct{ e wire.Encoder }

func (l *factList) add(op uint16, param uint32, object uint64, status int32, value string) *factList {
	l.e.U64(uint64(op) | uint64(param)<<32)
	l.e.U64(object)
	l.e.U64(0)
	l.e.U64(uint64(uint32(status)) | uint64(len(value))<<32)
	l.e.Raw([]byte(value))
	return l
}

func (l *factList) number(op uint16, param uint32, object, value uint64) *factList {
	return l.add(op, param, object, 0, string(binary.LittleEndian.AppendUint64(nil, value)))
}

// space is where an argument of a kernel lies.
func (l *factList) space(kernel uint64, index uint16, space uint32) *factList {
	l.e.U64(uint64(opClGetKernelArgInfo) | uint64(index)<<16 | uint64(kernelArgSpace)<<32)
	l.e.U64(kernel)
	l.e.U64(0)
	l.e.U64(4 << 32)
	l.e.Raw(binary.LittleEndian.AppendUint32(nil, space))
	return l
}

// reply is a build's.
func (l *factList) reply() []byte {
	var e wire.Encoder
	e.Bytes(l.e.Body())
	return e.Body()
}

func built3() *factList {
	return new(factList).
		add(opClGetProgramInfo, programKernelNames, 0x100, 0, "add;sub;mul\x00").
		number(opClGetKernelInfo, kernelNumArgs, 0, 2).space(0, 1, spaceLocal).number(opClGetKernelInfo, kernelNumArgs, 2, 3).
		add(opClGetProgramBuildInfo, programBuildLog, 0x100, 0, " careful\xff\n\x00rest").
		add(opClGetProgramBuildInfo, programVariables, 0x100, -30, "what failed has no value")
}

func TestLearn(t *testing.T) {
	var b built
	log, err := b.readReply(built3().reply())
	if err != nil || log != "careful?" || b.private {
		t.Errorf("got %q, %v, %t", log, err, b.private)
	}
	none := map[uint16]uint32{}
	want := map[string]parameters{"add": {2, map[uint16]uint32{1: spaceLocal}}, "sub": {-1, none}, "mul": {3, none}}
	if diff := cmp.Diff(want, b.kernels, cmp.AllowUnexported(parameters{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Who has variables shares nothing.
	if _, err := b.readReply(built3().number(opClGetProgramBuildInfo, programVariables, 0x100, 4).reply()); err != nil || !b.private {
		t.Errorf("got %v, %t", err, b.private)
	}
	for _, body := range [][]byte{make([]byte, 7), (&factList{}).add(1, 2, 3, 0, "x").reply()[:40]} {
		if _, err := b.readReply(body); err == nil {
			t.Errorf("%x is taken for a reply", body)
		}
	}
}

// FuzzFacts reads whatever a worker tells of a build.
func FuzzFacts(f *testing.F) {
	f.Add(built3().e.Body())
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, facts []byte) {
		var e wire.Encoder
		e.Bytes(facts)
		var b built
		if log, err := b.readReply(e.Body()); err == nil && len(log) > maxBuildLog {
			t.Errorf("a log of %d bytes", len(log))
		}
	})
}
