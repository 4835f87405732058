package opencl

import (
	"encoding/binary"
	"testing"
)

// A build must not ask for the binaries' sizes: PoCL compiles every kernel to
// answer that, and a program of fifty took ten times as long to build.
func TestBuildLeavesBinariesAlone(t *testing.T) {
	flagsOf(t, func(t *testing.T, c *testClient) {
		context, _ := c.stage(0)
		program := c.id()
		c.send(opClCreateProgramWithSource, &argsClCreateProgramWithSource{Context: context, Source: []byte(addOne), Result: program})
		_, body, _ := c.call(opClBuildProgram, &argsClBuildProgram{Program: program, DeviceList: []uint64{deviceID}})
		var r replyClBuildProgram
		if err := r.decode(body); err != nil {
			t.Fatal(err)
		}
		names := 0
		for rest := r.Facts; len(rest) >= 32; {
			op, param := binary.LittleEndian.Uint16(rest), binary.LittleEndian.Uint32(rest[4:])
			switch {
			case op == opClGetProgramInfo && param == clProgramKernelNames:
				names++
			case op == opClGetProgramInfo && (param == clProgramBinarySizes || param == clProgramBinaries):
				t.Errorf("the build answered the query %#x", param)
			}
			rest = rest[32+(binary.LittleEndian.Uint32(rest[28:])+7)&^7:]
		}
		if names != 1 {
			t.Errorf("the build told the kernels' names %d times", names)
		}
		// Who asks still learns them.
		for _, param := range []uint32{clProgramBinarySizes, clProgramBinaries} {
			status, body, _ := c.call(opClGetProgramInfo, &argsClGetProgramInfo{Program: program, ParamName: param})
			var r replyClGetProgramInfo
			if err := r.decode(body); err != nil || status != clSuccess || len(r.ParamValueSize) == 0 {
				t.Errorf("query %#x: status %d, %d bytes (%v)", param, status, len(r.ParamValueSize), err)
			}
		}
	})
}
