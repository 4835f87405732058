package recording

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/opencl"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// raw builds a process's file.
type raw struct {
	chunks  [][]byte
	streams map[uint32]uint32 // chunks so far
}

func (f *raw) chunk(kind uint16, stream, link uint32, records ...[]byte) *raw {
	if f.streams == nil {
		f.streams = make(map[uint32]uint32)
	}
	f.streams[stream]++
	return f.indexed(kind, stream, link, f.streams[stream]-1, records...)
}

// indexed adds the chunk with an index of its stream.
func (f *raw) indexed(kind uint16, stream, link, index uint32, records ...[]byte) *raw {
	b := make([]byte, chunkSize)
	copy(b, "OBRC")
	binary.LittleEndian.PutUint16(b[4:], fileVersion)
	binary.LittleEndian.PutUint16(b[6:], kind)
	binary.LittleEndian.PutUint32(b[8:], stream)
	binary.LittleEndian.PutUint32(b[16:], 77)
	binary.LittleEndian.PutUint32(b[20:], link)
	binary.LittleEndian.PutUint64(b[24:], 1000)
	used := chunkHeadSize
	for _, r := range records {
		used += copy(b[used:], r)
	}
	binary.LittleEndian.PutUint32(b[32:], uint32(used))
	binary.LittleEndian.PutUint32(b[36:], index)
	f.chunks = append(f.chunks, b)
	return f
}

func (f *raw) bytes() []byte { return bytes.Join(f.chunks, nil) }

func words(kind, flags byte, op uint16, link byte, words ...uint64) []byte {
	b := make([]byte, 8+8*len(words))
	binary.LittleEndian.PutUint16(b, uint16(len(b)))
	b[2], b[3], b[6] = kind, flags, link
	binary.LittleEndian.PutUint16(b[4:], op)
	for i, w := range words {
		binary.LittleEndian.PutUint64(b[8+8*i:], w)
	}
	return b
}

// call is a raw call; fields are those of rawCall.
func call(c rawCall) []byte {
	fields := []uint64{
		c.number, uint64(c.begin), uint64(c.duration), c.queue, c.event, c.object, c.detail,
		c.forward, c.backward, c.serial, uint64(c.encode), uint64(c.blocked),
	}
	return words(callRecord, c.flags, c.op, c.link, append(fields, c.waits...)...)
}

func op(t testing.TB, name string) uint16 {
	t.Helper()
	for i, o := range opencl.Ops {
		if o.Name == name {
			return uint16(i)
		}
	}
	t.Fatalf("no function %s", name)
	return 0
}

func joined(t testing.TB, mode trace.Mode, devices []trace.Device, files ...[]byte) (*trace.Reader, []trace.Record, error) {
	t.Helper()
	dir := t.TempDir()
	for i, f := range files {
		if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".rec"), f, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return joinFolder(t, mode, devices, dir)
}

func joinFolder(t testing.TB, mode trace.Mode, devices []trace.Device, dir string) (*trace.Reader, []trace.Record, error) {
	t.Helper()
	var out bytes.Buffer
	_, err := Join(&out, Options{Dir: dir, Header: trace.Header{API: "opencl", Mode: mode, Ops: opencl.Ops, Devices: devices, Origin: 500}})
	if err != nil {
		return nil, nil, err
	}
	r, err := trace.NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	var records []trace.Record
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r, records, nil
		}
		if err != nil {
			t.Fatal(err)
		}
		record.Waits = append([]uint64(nil), record.Waits...)
		records = append(records, record)
	}
}

// A local run: a queue out of order, a launch whose times the device gives on a clock of its own
// in the stream of another thread, a wait for its event, a map for writing and its unmap.
func TestLocal(t *testing.T) {
	const device, queue, event, memory = 0xd0, 0xa0, 0xe0, 0xf000
	thread0 := [][]byte{
		call(rawCall{op: op(t, "clCreateCommandQueue"), number: 0, begin: 2000, duration: 100, queue: queue, object: device, detail: queueOutOfOrder, forward: 64}),
		call(rawCall{op: op(t, "clEnqueueNDRangeKernel"), number: 1, begin: 2200, duration: 50, queue: queue, event: event, forward: 112}),
		call(rawCall{op: op(t, "clWaitForEvents"), number: 2, begin: 2300, duration: 800, waits: []uint64{event}, forward: 48, backward: 32}),
		call(rawCall{op: op(t, "clEnqueueMapBuffer"), number: 3, begin: 3200, duration: 10, queue: queue, object: memory, detail: mapWrite, forward: 80, backward: 4096, flags: flagBlocking}),
		call(rawCall{op: op(t, "clEnqueueUnmapMemObject"), number: 4, begin: 3300, duration: 10, queue: queue, object: memory}),
		call(rawCall{op: op(t, "clSetKernelArg"), number: 5, begin: 3400, duration: 10, forward: 80, flags: flagFailed}),
	}
	// The driver's clock is 1,000,000 ahead.
	thread1 := [][]byte{
		call(rawCall{op: op(t, "clFlush"), number: 1 << threadShift, begin: 2100, duration: 10, queue: queue, forward: 40}),
		words(deviceRecord, 0, 0, 0, 1, 1_002_225, 1_002_400, 1_003_000),
	}
	name := append(words(nameRecord, 0, deviceTypeGPU, 0, device, 4), "gpu!\x00\x00\x00\x00"...)
	binary.LittleEndian.PutUint16(name, uint16(len(name)))
	file := (&raw{}).chunk(threadStream, 1, 0, thread0...).chunk(threadStream, 2, 0, thread1...).chunk(nameStream, 3, 0, name)
	r, records, err := joined(t, trace.Local, nil, file.bytes())
	if err != nil {
		t.Fatal(err)
	}
	if d := r.Header().Devices; len(d) != 1 || d[0].Name != "gpu!" || d[0].Kind != "gpu" || !d[0].SameMachine {
		t.Errorf("devices are %+v", d)
	}
	if len(records) != 7 || records[1].Thread != 1 {
		t.Fatalf("%d records, the second of thread %d", len(records), records[1].Thread)
	}
	launch, wait, mapped, unmapped, failed := &records[2], &records[3], &records[4], &records[5], &records[6]
	if !launch.OutOfOrder || launch.Class != trace.Early || launch.Blocking != trace.DeviceBlocking || launch.DeviceTime != 600 {
		t.Errorf("the launch is %+v", launch)
	}
	// Its times: within the call of 50 ns, the offset is known to 25 ns.
	if off := launch.Start - (2400 - 500); off < -25 || off > 25 {
		t.Errorf("the launch starts %d ns from where it did", off)
	}
	if wait.Blocking != trace.HostBlocking || len(wait.Waits) != 1 || wait.Waits[0] != launch.Event || launch.Event == 0 {
		t.Errorf("the wait is %+v for event %d", wait, launch.Event)
	}
	if got := wait.Blocked; got < 675 || got > 725 || wait.Execute != 800-got {
		t.Errorf("the wait was blocked for %d ns and executed %d, want about 700 of 800", got, wait.Execute)
	}
	if mapped.Class != trace.WaitedFor || mapped.Forward != bufferTransferSize || mapped.Backward != 4096+32 || unmapped.Forward != 4096+bufferTransferSize {
		t.Errorf("map %+v, unmap %+v", mapped, unmapped)
	}
	if !failed.Failed || failed.Forward != 0 {
		t.Errorf("the failed call is %+v", failed)
	}
	if records[0].Gap != 1000 || launch.Gap != 100 || launch.Begin != 2200-500 {
		t.Errorf("gaps are %d and %d, want 1000 (since the process opened the recording) and 100", records[0].Gap, launch.Gap)
	}
}

// A map reads nothing if the driver library would hold the contents, and sends nothing unless it has an
// event or waits; a blocking one finishes its queue. An unmap without writes sends no more than a marker.
func TestMapsOfHeldContents(t *testing.T) {
	const queue, event, memory = 0xa0, 0xe0, 0xf000
	const local, early, waited = trace.AnsweredLocally, trace.Early, trace.WaitedFor
	mapped, unmapped := op(t, "clEnqueueMapBuffer"), op(t, "clEnqueueUnmapMemObject")
	of := func(c rawCall) rawCall {
		c.queue, c.object = queue, memory
		if c.op == mapped {
			c.forward, c.backward = 80, 4096
		}
		return c
	}
	tests := []struct {
		call              rawCall
		class             trace.Class
		command           bool
		forward, backward uint64
	}{
		{rawCall{op: mapped, detail: mapRead, flags: flagBlocking}, waited, true, bufferTransferSize, 4096 + messageHead},
		{rawCall{op: unmapped}, local, true, 0, 0},
		{rawCall{op: mapped, detail: mapRead, flags: flagBlocking | flagCurrent}, waited, false, finishSize, messageHead},
		{rawCall{op: unmapped, event: event}, early, true, markerSize, 0},
		{rawCall{op: mapped, detail: mapWrite, flags: flagCurrent}, local, true, 0, 0},
		{rawCall{op: unmapped}, early, true, bufferTransferSize + 4096, 0},
		{rawCall{op: mapped, detail: mapWriteInvalidate, event: event}, early, true, markerSize, 0},
		{rawCall{op: unmapped}, early, true, bufferTransferSize + 4096, 0},
		{rawCall{op: mapped, detail: mapWriteInvalidate, waits: []uint64{event}, flags: flagBlocking}, waited, true, markerSize + handleSize + waitSize, messageHead},
	}
	var raws [][]byte
	for i, c := range tests {
		c.call.number, c.call.begin, c.call.duration = uint64(i), 2000+int64(i)*100, 50
		raws = append(raws, call(of(c.call)))
	}
	_, records, err := joined(t, trace.Local, nil, (&raw{}).chunk(threadStream, 1, 0, raws...).bytes())
	if err != nil || len(records) != len(tests) {
		t.Fatalf("%d records, %v", len(records), err)
	}
	for i, want := range tests {
		r := &records[i]
		if r.Class != want.class || r.Command != want.command || r.Forward != want.forward || r.Backward != want.backward {
			t.Errorf("call %d is %v, command %v, with %d bytes and %d; want %v, %v, %d and %d",
				i, r.Class, r.Command, r.Forward, r.Backward, want.class, want.command, want.forward, want.backward)
		}
	}
}

// workerEntries are entries as a worker sends them.
func workerEntries(parts ...any) []byte {
	var b []byte
	for _, p := range parts {
		switch v := p.(type) {
		case byte:
			b = append(b, v)
		case int:
			b = binary.AppendVarint(b, int64(v))
		case uint:
			b = binary.AppendUvarint(b, uint64(v))
		}
	}
	head := words(workerRecord, 0, 0, 0, uint64(len(b)))
	head = append(head, b...)
	for len(head)%8 != 0 {
		head = append(head, 0)
	}
	binary.LittleEndian.PutUint16(head, uint16(len(head)))
	return head
}

// A remote run: the worker's clock is 100,000 behind, as the shortest of two readings says; its
// entries come in two notices, the device's times in the later one.
func TestRemote(t *testing.T) {
	calls := [][]byte{
		call(rawCall{op: op(t, "clEnqueueNDRangeKernel"), begin: 200_000, duration: 50, queue: 0xa0, flags: flagSent, forward: 112, serial: 7, encode: 40}),
		call(rawCall{op: op(t, "clFinish"), number: 1, begin: 200_100, duration: 5000, queue: 0xa0, flags: flagSent | flagWaited, forward: 40, backward: 32, serial: 8, encode: 30, blocked: 4900}),
		call(rawCall{op: op(t, "clGetDeviceInfo"), number: 2, begin: 206_000, duration: 20}),
		call(rawCall{op: op(t, "clBuildProgram"), number: 3, begin: 207_000, duration: 2000, flags: flagSent | flagWaited, forward: 96, backward: 40, serial: 9, encode: 50, blocked: 1900}),
	}
	link := [][]byte{
		words(clockRecord, 0, 0, 0, 90_500, 190_000, 191_400),
		words(clockRecord, 0, 0, 0, 91_500, 191_400, 191_600),
		workerEntries(byte(entryMessage), 7, 100_290, uint(300), uint(0), byte(entryMessage), 1, 500, uint(3500), uint(0)),
		workerEntries(byte(entryReply), 8, 104_300, byte(entryDevice), 7, 101_000, uint(3000)),
		workerEntries(byte(entryMessage), 9, 107_100, uint(50), uint(0), byte(entryReply), 0, 1800),
	}
	file := (&raw{}).chunk(threadStream, 1, 0, calls...).chunk(linkStream, 2, 0, link...)
	r, records, err := joined(t, trace.Remote, []trace.Device{{Name: "far", Machine: trace.Machine{Node: "b"}}}, file.bytes())
	if err != nil {
		t.Fatal(err)
	}
	d := r.Header().Devices[0]
	if d.Clock.Offset != 100_000 || d.Clock.Uncertainty != 100 || d.Link.RTT == 0 {
		t.Errorf("clock %+v, link %+v", d.Clock, d.Link)
	}
	launch, finish, query, build := &records[0], &records[1], &records[2], &records[3]
	if launch.Class != trace.Early || launch.WireForward != 250 || launch.Execute != 300 || launch.Start != 201_000-500 || launch.DeviceTime != 3000 {
		t.Errorf("the launch is %+v", launch)
	}
	// The worker received clFinish at 200,790 and waited for the device until 204,000.
	if finish.Class != trace.WaitedFor || finish.WireForward != 660 || finish.WireBackward != 800 || finish.Execute != 3500-3210 {
		t.Errorf("clFinish is %+v", finish)
	}
	if query.Class != trace.AnsweredLocally || query.Execute != 20 {
		t.Errorf("the query is %+v", query)
	}
	// The dispatcher went on after 50; a helper replied 1,800 after the message.
	if build.WireForward != 50 || build.Execute != 1800 || build.WireBackward != 100 {
		t.Errorf("the build is %+v", build)
	}
}

func TestHostileFiles(t *testing.T) {
	good := func() *raw {
		return (&raw{}).chunk(threadStream, 1, 0, call(rawCall{op: 1, begin: 2000}))
	}
	for name, file := range map[string][]byte{
		"other magic":   append([]byte("ELF!"), good().bytes()[4:]...),
		"used too much": func() []byte { b := good().bytes(); binary.LittleEndian.PutUint32(b[32:], chunkSize+8); return b }(),
		"short record":  (&raw{}).chunk(threadStream, 1, 0, []byte{8, 0, 1, 0, 1, 0, 0, 0}).bytes(),
		"no function":   (&raw{}).chunk(threadStream, 1, 0, call(rawCall{op: 60000, begin: 2000})).bytes(),
		"negative time": (&raw{}).chunk(threadStream, 1, 0, call(rawCall{op: 1, begin: -5})).bytes(),
		"other lease":   good().chunk(linkStream, 2, 63, workerEntries(byte(entryMessage))).bytes(),
		"bad entries":   good().chunk(linkStream, 2, 0, words(clockRecord, 0, 0, 0, 1, 2, 3)).bytes()[:chunkSize+40],
		"order":         func() []byte { f := good(); f.streams[1] = 5; return f.chunk(threadStream, 1, 0).bytes() }(),
	} {
		if _, _, err := joined(t, trace.Remote, []trace.Device{{Name: "a"}}, file); err == nil && name != "bad entries" {
			t.Errorf("%s: no error", name)
		}
	}
}

// A process that was killed leaves whole records.
func TestKilled(t *testing.T) {
	file := (&raw{}).chunk(threadStream, 1, 0, call(rawCall{op: 1, begin: 2000, duration: 5}), call(rawCall{op: 1, number: 1, begin: 3000, duration: 5})).bytes()
	binary.LittleEndian.PutUint32(file[32:], chunkHeadSize+callSize) // the second was not committed
	_, records, err := joined(t, trace.Local, nil, append(file, make([]byte, chunkSize)...))
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
}

func FuzzJoin(f *testing.F) {
	f.Add((&raw{}).chunk(threadStream, 1, 0, call(rawCall{op: 88, begin: 2000, queue: 5, event: 9, flags: flagSent | flagWaited, serial: 1})).
		chunk(linkStream, 2, 0, words(clockRecord, 0, 0, 0, 1, 2, 3), workerEntries(byte(entryMessage), 1, 5, uint(3), uint(0))).bytes()[:chunkSize+400])
	f.Fuzz(func(t *testing.T, file []byte) {
		_, _, _ = joined(t, trace.Remote, []trace.Device{{Name: "a"}}, file)
		_, _, _ = joined(t, trace.Local, nil, file)
	})
}

// A trace has the program's arguments, names and times: other users of the machine do not read it.
func TestTracesAreTheUsersOwn(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "a.trace")
	r, err := NewRecorder(RecorderOptions{File: file, Mode: "local", Path: program, Args: []string{program}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Close(0); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// A recording is found whatever the name that the user has given it.
func TestNamesThatArePatterns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run[1]*.trace.recording")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	file := (&raw{}).chunk(threadStream, 1, 0, call(rawCall{op: op(t, "clFlush"), begin: 2000, duration: 10}))
	if err := os.WriteFile(filepath.Join(dir, "7.rec"), file.bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, records, err := joinFolder(t, trace.Local, nil, dir); err != nil || len(records) != 1 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

// A recording replaces a file, and nothing else: that of root's could replace /dev/null.
func TestOnlyFilesAreReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "null")
	if err := unix.Mkfifo(file, 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := NewRecorder(RecorderOptions{File: file, Mode: trace.Local, Path: program, Args: []string{program}}); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("a recording into what is no file: %v", err)
	}
	if _, err := os.Lstat(file + ".recording"); err == nil {
		t.Error("its folder is left")
	}
}

// A run that was killed leaves its folder. The next one to the same file uses it; not so a run while
// the first one still runs, nor where the folder is the user's.
func TestFolderOfKilledRun(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "a.trace")
	record := func() (*Recorder, error) {
		return NewRecorder(RecorderOptions{File: file, Mode: trace.Local, Path: program, Args: []string{program}})
	}
	killed, err := record()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"7-0" + fileExt, draftName} {
		if err := os.WriteFile(filepath.Join(file+".recording", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := record(); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("two runs record to one file: %v", err)
	}
	if err := killed.lock.Close(); err != nil { // as the end of its process does
		t.Fatal(err)
	}
	r, err := record()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Close(0); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(file + "*"); err != nil || len(left) != 1 {
		t.Errorf("left: %q, %v", left, err)
	}
	mine := filepath.Join(file+".recording", "mine")
	if err := os.MkdirAll(mine, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := record(); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("a folder of the user's: %v", err)
	}
	if _, err := os.Stat(mine); err != nil {
		t.Error(err)
	}
}
