package ctest_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/gen"
	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/shm"
)

// A description is the API description with the values of its constants.
type description struct {
	api       *gen.API
	constants map[string]int64
	calls     map[uint16]*gen.Call // by op
	ops       map[string]uint16
}

func readDescription(t testing.TB) *description {
	t.Helper()
	text, err := os.ReadFile("../../../internal/accel/opencl/opencl.api")
	if err != nil {
		t.Fatal(err)
	}
	api, err := gen.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	headers, err := api.ReadHeaders("/usr/include")
	if err != nil {
		t.Fatal(err)
	}
	d := &description{api: api, constants: headers.Constants, calls: map[uint16]*gen.Call{}, ops: map[string]uint16{}}
	for _, calls := range [][]*gen.Call{api.Calls, api.Messages, api.Notices} {
		for _, c := range calls {
			d.calls[uint16(c.Op)], d.ops[c.Name] = c, uint16(c.Op)
		}
	}
	return d
}

// A mutation is one field of the worker's answers at one of its edges: of the
// replies to an op, or of the facts with a parameter.
type mutation struct {
	op    uint16
	field int    // of the reply; status: the reply's status
	fact  string // the parameter's name; empty for a field of a reply
	from  int    // the first answer that is mutated: those before it are honest
	edge  int
	older bool   // of a release without shared virtual memory, and honest
	late  string // the call by whose end the data of earlier reads is due: it is sent with the next reply
	end   int    // with late: the way in which the program waits for the end of a read
	seed  uint64 // not 0: each field of each answer and each fact is at some edge, with a chance of one in eight
}

const fieldStatus = -1

// newOffers are the messages that a worker of an older release does not know.
var newOffers = []string{"svm_alloc", "clSetKernelExecInfo"}

func (m mutation) String() string {
	if m.older {
		return "older"
	}
	if m.late != "" {
		return fmt.Sprintf("data after the reply to %s, end %d", m.late, m.end)
	}
	if m.seed != 0 {
		return fmt.Sprintf("seed %d", m.seed)
	}
	return fmt.Sprintf("op %#x field %d %s from answer %d edge %d", m.op, m.field, m.fact, m.from, m.edge)
}

// unaligned is an address that a program has no use of, and that no alignment of a type divides.
const unaligned = 0x300000000001

var wordEdges = []uint64{unaligned, 0, 1, 2, math.MaxInt32, 1 << 31, math.MaxUint32 - 1, math.MaxUint32, 1 << 32, 1 << 63, math.MaxUint64 - 1, math.MaxUint64}

// counted returns data with the count word that belongs to it.
func counted(data []byte) (count uint64, of []byte) { return uint64(len(data)), data }

// byteEdges are what becomes of a field of bytes: its count word and its contents.
var byteEdges = []func(honest []byte) (count uint64, data []byte){
	func([]byte) (uint64, []byte) { return math.MaxUint64, nil }, // absent
	func([]byte) (uint64, []byte) { return 0, nil },
	func(b []byte) (uint64, []byte) { return 1, []byte{'x'} },
	func(b []byte) (uint64, []byte) { return counted(b[:max(len(b), 1)-1]) },
	func(b []byte) (uint64, []byte) { return counted(append(bytes.Clone(b), 'x')) },
	func(b []byte) (uint64, []byte) { return counted(append(bytes.Clone(b), b...)) },
	func(b []byte) (uint64, []byte) { return counted(bytes.Repeat([]byte{0xff}, len(b))) },
	func([]byte) (uint64, []byte) { return counted(bytes.Repeat([]byte{'A'}, 1<<20)) },
	func(b []byte) (uint64, []byte) { return uint64(len(b)) + 8, b }, // longer than the body
	func(b []byte) (uint64, []byte) { return 1 << 61, b },
	func(b []byte) (uint64, []byte) { return 1<<63 - 1, b },
	func(b []byte) (uint64, []byte) { return math.MaxUint32, b },
	func([]byte) (uint64, []byte) { b := le(1<<63, math.MaxUint64); return uint64(len(b)), b },
	func([]byte) (uint64, []byte) { b := le(math.MaxUint32, 1<<31); return uint64(len(b)), b },
	func([]byte) (uint64, []byte) { return counted(le(128, 1<<62)) },                           // a size that changed
	func([]byte) (uint64, []byte) { b := bytes.Repeat(le(128), 16); return uint64(len(b)), b }, // and what has it
}

func le(words ...uint64) []byte { return wordsOf(words) }

func wordsOf(words []uint64) []byte {
	var b []byte
	for _, w := range words {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

func appendArray(b []byte, count uint64, data []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, count)
	return append(append(b, data...), make([]byte, -len(data)&7)...)
}

// mutations lists every field of every reply and every fact at every edge.
func (d *description) mutations() []mutation {
	all := lateData()
	for _, c := range append(d.api.Calls, d.api.Messages...) {
		if !c.Waits() && c.When == "" {
			continue
		}
		for from := range 2 {
			for edge := range wordEdges {
				all = append(all, mutation{op: uint16(c.Op), field: fieldStatus, from: from, edge: edge})
			}
			for field, p := range c.Out() {
				edges := len(byteEdges)
				if p.Treatment == gen.OutValue {
					edges = len(wordEdges)
				}
				for edge := range edges {
					all = append(all, mutation{op: uint16(c.Op), field: field, from: from, edge: edge})
				}
			}
		}
	}
	for _, f := range d.api.Facts {
		for edge := range len(byteEdges) + len(wordEdges) {
			all = append(all, mutation{op: d.ops[f.Call], fact: f.Param, edge: edge})
		}
	}
	return all
}

// lateData lists the ways to send a read's data after the reply that implies its end.
func lateData() []mutation {
	return []mutation{
		{late: "clWaitForEvents", end: 0},
		{late: "clFinish", end: 1},
		{late: "clEnqueueReadBuffer", end: 2},
		{late: "clWaitForEvents", end: 3},
		{late: "watch", end: 4},
		{late: "clWaitForEvents", end: 5},
		{late: "clFinish", end: 6},
		{late: "clEnqueueReadBuffer", end: 7},
		{late: "watch", end: 8},
		{late: "clWaitForEvents", end: 9},
		{late: "clEnqueueReadBuffer", end: 10},
	}
}

// A hostileWorker answers one program, honestly but for its mutation.
type hostileWorker struct {
	*description
	m       mutation
	random  *rand.Rand
	answers map[uint16]int
	out     *session.Writer
	held    []func() // data that was due before a reply
	overdue bool     // that reply has been sent
}

// edge says at which of so many edges a field of the nth reply to an op is, or a fact.
func (w *hostileWorker) edge(op uint16, n, field int, fact string, edges int) (edge int, ok bool) {
	if w.m.seed != 0 {
		return w.random.IntN(edges), w.random.IntN(8) == 0
	}
	if fact != "" {
		return w.m.edge, w.m.fact == fact
	}
	return w.m.edge, w.m.fact == "" && w.m.op == op && n >= w.m.from && w.m.field == field
}

// honest is a plausible value of a fact.
func (d *description) honest(f gen.Fact) []byte {
	values := map[string]uint64{
		"CL_DEVICE_TYPE": 4, "CL_DEVICE_IMAGE_SUPPORT": 1, "CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS": 3, "CL_DEVICE_ADDRESS_BITS": 64,
		"CL_DEVICE_PARTITION_MAX_SUB_DEVICES": 2, "CL_PROGRAM_NUM_KERNELS": 1, "CL_KERNEL_NUM_ARGS": 3, "CL_PROGRAM_BUILD_STATUS": 0,
		"CL_PROGRAM_BINARY_TYPE": 4, "CL_KERNEL_ARG_ADDRESS_QUALIFIER": 0x119b, "CL_KERNEL_ARG_ACCESS_QUALIFIER": 0x11a3,
		"CL_KERNEL_ARG_TYPE_QUALIFIER": 0, "CL_DEVICE_IMAGE_PITCH_ALIGNMENT": 1, "CL_KERNEL_COMPILE_WORK_GROUP_SIZE": 0,
		"CL_DEVICE_QUEUE_ON_HOST_PROPERTIES": 3, "CL_DEVICE_MEM_BASE_ADDR_ALIGN": 64, "CL_DEVICE_SVM_CAPABILITIES": 0,
	}
	if f.Call == "svm_alloc" {
		return le(1)
	}
	texts := map[string]string{
		"CL_DEVICE_VERSION": "OpenCL 3.0 x", "CL_PLATFORM_VERSION": "OpenCL 3.0 x", "CL_PROGRAM_KERNEL_NAMES": "k", "CL_KERNEL_FUNCTION_NAME": "k",
		"CL_KERNEL_ARG_TYPE_NAME": "int*",
	}
	if f.Text {
		return append([]byte(texts[f.Param]), 0)
	}
	v, known := values[f.Param]
	if !known {
		v = 1 << 20
	}
	if f.Size == 0 {
		return le(0)
	}
	b := make([]byte, f.Size)
	for at := 0; at+8 <= len(b); at += 8 {
		binary.LittleEndian.PutUint64(b[at:], v)
	}
	if len(b) == 4 {
		binary.LittleEndian.PutUint32(b, uint32(v))
	}
	return b
}

// facts are the facts of the calls with those names.
func (w *hostileWorker) facts(object, device uint64, index int, calls ...string) []byte {
	var all []byte
	for _, call := range calls {
		for _, f := range w.api.Facts {
			if f.Call != call {
				continue
			}
			value := w.honest(f)
			size := uint64(len(value))
			if edge, ok := w.edge(0, 0, 0, f.Param, len(byteEdges)+len(wordEdges)); ok {
				size, value = mutateFact(edge, value)
			}
			head := le(uint64(w.ops[call])|uint64(index)<<16|uint64(w.constants[f.Param])<<32, object, device, size<<32)
			all = append(append(append(all, head...), value...), make([]byte, -len(value)&7)...)
		}
	}
	return all
}

func mutateFact(edge int, honest []byte) (uint64, []byte) {
	if edge >= len(byteEdges) {
		b := le(wordEdges[edge-len(byteEdges)], wordEdges[edge-len(byteEdges)], wordEdges[edge-len(byteEdges)])[:max(min(len(honest), 24), 1)]
		return uint64(len(b)), b
	}
	return byteEdges[edge](honest)
}

func (w *hostileWorker) deviceFacts(device uint64) []byte {
	if w.m.older {
		return w.facts(device, 0, 0, "clGetDeviceInfo")
	}
	return w.facts(device, 0, 0, "clGetDeviceInfo", "svm_alloc")
}

func (w *hostileWorker) buildFacts(program uint64) []byte {
	all := w.facts(program, 0, 0, "clGetProgramInfo")
	all = append(all, w.facts(program, 2, 0, "clGetProgramBuildInfo")...)
	all = append(all, w.facts(0, 0, 0, "clGetKernelInfo")...)
	for i := range 3 {
		all = append(all, w.facts(0, 0, i, "clGetKernelArgInfo")...)
	}
	return append(all, w.facts(0, 2, 0, "clGetKernelWorkGroupInfo")...)
}

// reply is what the worker answers: status, body, bulk.
func (w *hostileWorker) reply(c *gen.Call, request []byte) (status int32, body []byte, bulk []byte) {
	n := w.answers[uint16(c.Op)]
	w.answers[uint16(c.Op)]++
	for i, p := range c.Out() {
		body = w.appendField(body, c, p, request, n, i)
	}
	if c.Bulk(gen.BulkOut) != nil {
		bulk = make([]byte, bulkSize(c, request))
	}
	if edge, ok := w.edge(uint16(c.Op), n, fieldStatus, "", len(wordEdges)); ok {
		status = int32(uint32(wordEdges[edge]))
	}
	return status, body, bulk
}

// appendField appends a field of the nth reply to an op.
func (w *hostileWorker) appendField(body []byte, c *gen.Call, p *gen.Param, request []byte, n, field int) []byte {
	if p.Treatment == gen.OutValue {
		v := uint64(2)
		if c.Name == "svm_alloc" {
			v = 0x300000000000 + uint64(n)<<20
		}
		if edge, ok := w.edge(uint16(c.Op), n, field, "", len(wordEdges)); ok {
			v = wordEdges[edge]
		}
		return binary.LittleEndian.AppendUint64(body, v)
	}
	data := w.bytesOf(c, p, request)
	count := uint64(len(data))
	if p.Treatment == gen.OutArray {
		count /= 4
	}
	if edge, ok := w.edge(uint16(c.Op), n, field, "", len(byteEdges)); ok {
		count, data = byteEdges[edge](data)
	}
	return appendArray(body, count, data)
}

func (w *hostileWorker) bytesOf(c *gen.Call, p *gen.Param, request []byte) []byte {
	last := binary.LittleEndian.Uint64(request[len(request)-8:])
	first := binary.LittleEndian.Uint64(request)
	switch {
	case p.Name == "facts" && c.Name == "clCreateSubDevices":
		return w.deviceFacts(last - 1)
	case p.Name == "facts" && (c.Name == "clBuildProgram" || c.Name == "clCompileProgram"):
		return w.buildFacts(first)
	case p.Name == "facts":
		return w.buildFacts(last)
	case p.Treatment == gen.OutArray:
		return make([]byte, 4)
	case c.Name == "clGetProgramInfo" && binary.LittleEndian.Uint64(request[8:]) == 0x1165: // CL_PROGRAM_BINARY_SIZES
		return le(64)
	case c.Name == "clGetProgramInfo":
		return bytes.Repeat([]byte{1}, 64)
	case c.Name == "clGetSupportedImageFormats":
		return le(0x10b5 | 0x10d2<<32)
	}
	return le(64)
}

// bulkSize is the size of a read: of a buffer its word, of an image of 4 bytes a pixel its region.
func bulkSize(c *gen.Call, request []byte) uint64 {
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(request[8*i:]) }
	if c.Name == "clEnqueueReadBuffer" {
		return word(4)
	}
	return 4 * word(8) * word(9) * word(10)
}

func (w *hostileWorker) serve(in *session.Reader) {
	snapshot := w.facts(1, 0, 0, "clGetPlatformInfo")
	snapshot = append(snapshot, w.deviceFacts(2)...)
	_ = w.out.Send(session.Header{Op: w.ops["snapshot"]}, appendArray(le(1<<30), uint64(len(snapshot)), snapshot))
	for {
		h, body, err := in.Next()
		if err != nil {
			return
		}
		request := bytes.Clone(body)
		for in.BulkLeft() > 0 {
			if _, err := in.NextBulk(); err != nil {
				return
			}
		}
		c := w.calls[h.Op]
		switch {
		case c == nil || w.m.older && slices.Contains(newOffers, c.Name):
			return
		case c.Name == "watch":
			event := binary.LittleEndian.Uint64(request)
			_ = w.out.Send(session.Header{Op: w.ops["event"]}, le(event, 0, math.MaxUint64))
			w.overdue = len(w.held) > 0
		case h.Flags&session.WantReply != 0:
			status, body, bulk := w.reply(c, request)
			if status != 0 {
				bulk = nil
			}
			if w.overdue || c.Name != w.m.late {
				w.sendHeld()
			}
			_ = w.out.Send(session.Header{Op: h.Op, Flags: session.IsReply, Call: h.Call, Status: status}, body, bulk)
			w.overdue = len(w.held) > 0
		case c.Bulk(gen.BulkOut) != nil:
			status, _, bulk := w.reply(c, request)
			if status != 0 {
				bulk = nil
			}
			w.held = append(w.held, func() {
				_ = w.out.Send(session.Header{Op: w.ops["data"]}, le(h.Serial, uint64(uint32(status))), bulk)
			})
			if w.m.late == "" {
				w.sendHeld()
			}
		}
	}
}

// sendHeld sends the data that was held back.
func (w *hostileWorker) sendHeld() {
	for _, send := range w.held {
		send()
	}
	w.held, w.overdue = nil, false
}

// A hostileHost accepts the program's sessions, one at a time.
type hostileHost struct {
	*description
	listener *net.UnixListener
	mu       sync.Mutex
	m        mutation
}

func (s *hostileHost) session(conn *net.UnixConn) error {
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, 32)); err != nil {
		return err
	}
	const area = 1 << 20
	f, err := shm.NewFile(area)
	if err != nil {
		return err
	}
	ring, err := shm.Open(f, shm.Worker)
	if err != nil {
		return err
	}
	defer ring.Unmap()
	answer := make([]byte, 64)
	binary.LittleEndian.PutUint32(answer[4:], 1)
	binary.LittleEndian.PutUint64(answer[8:], 1<<30)
	binary.LittleEndian.PutUint32(answer[16:], 5000)
	if _, _, err := conn.WriteMsgUnix(answer, unix.UnixRights(int(f.Fd())), nil); err != nil {
		return err
	}
	in, err := session.NewReader(ring, area)
	if err != nil {
		return err
	}
	s.mu.Lock()
	w := &hostileWorker{description: s.description, m: s.m, answers: map[uint16]int{}, out: session.NewWriter(ring, area)}
	s.mu.Unlock()
	w.random = rand.New(rand.NewPCG(w.m.seed, 0))
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.serve(in)
	}()
	_, _ = io.Copy(io.Discard, conn) // until the program is gone
	_ = ring.Close(shm.Done)
	<-done
	return in.Close()
}

func (s *hostileHost) accept(t *testing.T) {
	for {
		conn, err := s.listener.AcceptUnix()
		if err != nil {
			return
		}
		if err := s.session(conn); err != nil {
			t.Log(err) // a child that died early
		}
	}
}

// forms writes the description's facts as rows of C.
func (d *description) forms(t *testing.T, path string) {
	t.Helper()
	var b strings.Builder
	for _, f := range d.api.Facts {
		text := 0
		if f.Text {
			text = 1
		}
		fmt.Fprintf(&b, "{OP_%s, %s, %d, %d},\n", f.Call, f.Param, text, f.Size)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// buildHostile builds the program with all of the library's files and the sanitizers.
func buildHostile(t *testing.T, d *description) string {
	t.Helper()
	dir := t.TempDir()
	d.forms(t, filepath.Join(dir, "forms.inc"))
	return objects.link(t, append(libraryFiles(t), "testdata/hostile.c"), "-I"+dir)
}

// TestHostileWorker: a program on a worker whose answers have any field at any of
// its edges neither crashes nor reads or writes outside its memory. Each field of
// each reply and each fact comes from the API description. A sample runs by default;
// OUTBOARD_TEST_HOSTILE=all runs them all, and a duration so many of them, and of combinations at
// random, as that time allows (`make fuzz-library`), with seeds from OUTBOARD_TEST_SEED on.
func TestHostileWorker(t *testing.T) {
	d := readDescription(t)
	program := buildHostile(t, d)
	dir, err := os.MkdirTemp("", "obh")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	host := &hostileHost{description: d}
	path := filepath.Join(dir, "s")
	if host.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	group.Go(func() { host.accept(t) })
	defer group.Wait()
	defer host.listener.Close()

	cmd := exec.Command(program, path)
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1")
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}()
	lines := bufio.NewScanner(stdout)
	run := func(line string, m mutation) bool {
		host.mu.Lock()
		host.m = m
		host.mu.Unlock()
		stderr.reset()
		if _, err := io.WriteString(stdin, line); err != nil || !lines.Scan() {
			t.Fatalf("%v: %v", m, err)
		}
		got := lines.Text()
		if got != "ok" {
			t.Errorf("%s, %v: %s\n%.3000s", line, m, got, stderr.text())
		}
		return got == "ok"
	}
	if !run("honest\n", mutation{}) || !run("older\n", mutation{older: true}) {
		return
	}
	run("hostile\n", d.unalignedMemory())
	c := newCampaign(t, d)
	for m, ok := c.next(); ok; m, ok = c.next() {
		line := "hostile\n"
		if m.late != "" {
			line = fmt.Sprintf("end %d\n", m.end)
		}
		if !run(line, m) {
			c.failures++
		}
	}
	c.report()
}

// unalignedMemory is the mutation whose shared virtual memory begins at unaligned addresses.
func (d *description) unalignedMemory() mutation {
	return mutation{op: d.ops["svm_alloc"], edge: slices.Index(wordEdges, unaligned)}
}

// A campaign is the mutations that a test tries, listed ones and combinations in turns.
type campaign struct {
	t            *testing.T
	began        time.Time
	limit        time.Duration
	listed       []mutation // that are not tried yet
	all          int        // of them at the beginning
	combinations int        // to try
	seed         int        // how many were tried
	first        int        // the seed before that of the first one
	failures     int
	reported     time.Time
}

func newCampaign(t *testing.T, d *description) *campaign {
	c := &campaign{t: t, began: time.Now(), limit: math.MaxInt64, listed: sample(d.mutations()), combinations: 20, reported: time.Now()}
	if first, err := strconv.Atoi(os.Getenv("OUTBOARD_TEST_SEED")); err == nil {
		c.first = first
	}
	c.all = len(c.listed)
	if limit, err := time.ParseDuration(os.Getenv("OUTBOARD_TEST_HOSTILE")); err == nil {
		c.combinations, c.limit = math.MaxInt, limit
		// A short time tries some of each kind.
		rand.New(rand.NewPCG(1, 0)).Shuffle(c.all, func(i, j int) { c.listed[i], c.listed[j] = c.listed[j], c.listed[i] })
	}
	return c
}

// maxFailures ends a campaign: more of them say nothing new.
const maxFailures = 8

// next returns the next mutation; false at the end.
func (c *campaign) next() (mutation, bool) {
	if time.Since(c.reported) > 10*time.Second {
		c.report()
	}
	switch {
	case c.failures > maxFailures || time.Since(c.began) > c.limit || len(c.listed) == 0 && c.seed == c.combinations:
		return mutation{}, false
	case len(c.listed) > 0 && (c.seed == c.combinations || len(c.listed)+c.seed >= c.all):
		m := c.listed[0]
		c.listed = c.listed[1:]
		return m, true
	}
	c.seed++
	return mutation{seed: uint64(c.first + c.seed)}, true
}

// report logs how far the campaign has come; `make fuzz-library` shows it at once.
func (c *campaign) report() {
	c.reported = time.Now()
	c.t.Logf("after %v: %d of %d fields at an edge and %d combinations were tried, %d failed",
		time.Since(c.began).Round(time.Second), c.all-len(c.listed), c.all, c.seed, c.failures)
}

// sample returns every so many of the mutations, and all that were attacks.
func sample(all []mutation) []mutation {
	if os.Getenv("OUTBOARD_TEST_HOSTILE") != "" {
		return all
	}
	const stride = 61
	var some []mutation
	for i, m := range all {
		attack := m.late != "" || m.fact == "CL_KERNEL_NUM_ARGS" || m.fact == "CL_DEVICE_PARTITION_MAX_SUB_DEVICES" || (m.op == 0x44 && m.field == 0)
		if attack || i%stride == 0 {
			some = append(some, m)
		}
	}
	return some
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

func (l *lockedBuffer) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
