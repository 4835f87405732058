package trace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

func testHeader() Header {
	return Header{
		API: "opencl", Mode: Remote, Origin: 5, Started: time.Unix(1700000000, 0).UTC(),
		Program: Program{Name: "demo", Fingerprint: "00ff"}, Client: Machine{Node: "here", Cores: 2},
		Devices: []Device{{ID: "a/opencl/0", Name: "one", Clock: Clock{Offset: -7, Uncertainty: 3}}, {Name: "two"}},
		Ops:     []Op{{Name: "clFinish", Answer: "wait"}, {Name: "clSetKernelArg", Answer: "early"}, {Name: "clEnqueueNDRangeKernel", Answer: "early"}},
	}
}

// randomRecords are n records of several threads as a program makes them.
func randomRecords(n int) []Record {
	random := rand.New(rand.NewPCG(1, 2))
	ends := make(map[threadKey]int64)
	var records []Record
	for i := range n {
		at := threadKey{uint32(random.IntN(2)), uint32(random.IntN(3))}
		r := Record{Process: at.process, Thread: at.thread, Op: uint16(i % 3), Class: Class(i % 3), Gap: random.Int64N(3000)}
		r.Begin = ends[at] + r.Gap
		r.End = r.Begin + random.Int64N(10_000)
		ends[at] = r.End
		r.Encode, r.WireForward, r.Execute = random.Int64N(2000), random.Int64N(20_000), random.Int64N(4000)
		r.Forward = uint64(random.IntN(300))
		if i%3 == 2 {
			r.Command, r.Blocking, r.Queue = true, DeviceBlocking, 7+uint64(i%2)
			r.Start, r.DeviceTime = r.End+random.Int64N(9000), random.Int64N(100_000)
			r.Event = uint64(1000 + i)
			r.Waits = slices.Repeat([]uint64{uint64(990 + i)}, i%4)
		}
		if i%3 == 0 {
			r.Blocking, r.Queue, r.Blocked, r.WireBackward, r.Backward = HostBlocking, 7, 50, 60, 40
			r.Device, r.OutOfOrder, r.Failed = 1, true, i%2 == 0
		}
		records = append(records, r)
	}
	slices.SortStableFunc(records, func(a, b Record) int { return int(a.Begin - b.Begin) })
	return records
}

func encode(t testing.TB, records []Record) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := w.Write(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(End{Lost: 3, Duration: 99, Status: 1}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func decode(b []byte) ([]Record, *Reader, error) {
	r, err := NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, nil, err
	}
	var records []Record
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			return records, r, nil
		}
		if err != nil {
			return records, r, err
		}
		record.Waits = slices.Clone(record.Waits)
		if len(record.Waits) == 0 {
			record.Waits = nil
		}
		records = append(records, record)
	}
}

func TestRoundTrip(t *testing.T) {
	want := randomRecords(20_000)
	for i := range want {
		if len(want[i].Waits) == 0 {
			want[i].Waits = nil
		}
	}
	file := encode(t, want)
	got, r, err := decode(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff[:min(len(diff), 2000)])
	}
	if diff := cmp.Diff(testHeader(), *r.Header()); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&End{Records: 20_000, Lost: 3, Duration: 99, Status: 1}, r.End()); diff != "" || r.Truncated() {
		t.Errorf("end (-want +got):\n%s\ntruncated: %v", diff, r.Truncated())
	}
	if perCall := float64(len(file)) / float64(len(want)); perCall > 24 {
		t.Errorf("%.1f bytes per call, more than 24", perCall)
	}
}

// A file that was cut off anywhere is read up to its last whole block.
func TestTruncated(t *testing.T) {
	want := randomRecords(10_000)
	file := encode(t, want)
	last := 0
	for size := 0; size < len(file); size += 997 {
		got, r, err := decode(file[:size])
		if err != nil {
			if size > 2000 {
				t.Fatalf("%d of %d bytes: %v", size, len(file), err)
			}
			continue // within the header
		}
		if !r.Truncated() || r.End() != nil {
			t.Fatalf("%d of %d bytes: not known as cut off", size, len(file))
		}
		if len(got) < last {
			t.Fatalf("%d bytes give %d records, fewer than a shorter file's %d", size, len(got), last)
		}
		last = len(got)
	}
	if last < 5000 {
		t.Errorf("the longest truncated file gave %d records of %d", last, len(want))
	}
}

// Records before a damaged block are read, and nothing after it.
func TestDamaged(t *testing.T) {
	file := encode(t, randomRecords(20_000))
	whole, _, _ := decode(file)
	file[len(file)/2] ^= 0x40
	got, r, err := decode(file)
	if err != nil || !r.Truncated() {
		t.Fatalf("truncated %v, error %v: want a cut-off trace", r.Truncated(), err)
	}
	if len(got) == 0 || len(got) >= len(whole) {
		t.Errorf("%d records of %d", len(got), len(whole))
	}
}

func TestRefused(t *testing.T) {
	good := encode(t, randomRecords(10))
	change := func(f func(b []byte)) []byte {
		b := slices.Clone(good)
		f(b)
		return b
	}
	for name, test := range map[string]struct {
		file []byte
		want string
	}{
		"empty":          {nil, "not a trace"},
		"something else": {[]byte(strings.Repeat("GIF89a", 20)), "not a trace"},
		"version":        {change(func(b []byte) { b[8] = 9 }), "version 9"},
		"large header":   {change(func(b []byte) { binary.LittleEndian.PutUint32(b[12:], 1<<31) }), "header of 2147483648 bytes"},
		"short":          {good[:40], "ends within its header"},
		"header":         {change(func(b []byte) { b[30] ^= 1 }), "checksum"},
		"formula":        {renamed(good, "clFinish", "=HYPER()"), "want an identifier"},
		"escape":         {renamed(good, "clFinish", `\u001b[8m`), "want an identifier"},
		"no name":        {renamed(good, `"clFinish"`, `""        `), "want an identifier"},
	} {
		_, _, err := decode(test.file)
		if err == nil || !strings.Contains(err.Error(), test.want) || outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: error %v (%v), want %q", name, err, outboard.KindOf(err), test.want)
		}
	}
}

// renamed is a trace with another text in its header.
func renamed(file []byte, old, text string) []byte {
	size := binary.LittleEndian.Uint32(file[12:])
	b := slices.Concat(file[:20], bytes.Replace(file[20:20+size], []byte(old), fmt.Appendf(nil, "%*s", -len(old), text), 1), file[20+size:])
	size += uint32(len(b) - len(file))
	binary.LittleEndian.PutUint32(b[12:], size)
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(b[20:20+size], castagnoli))
	return b
}

// hostileBlock is a whole trace whose only block has the given payload.
func hostileBlock(t testing.TB, records uint32, payload []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.block(recordBlock, records, payload); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestHostileBlocks(t *testing.T) {
	for name, payload := range map[string][]byte{
		"unknown mask":     binary.AppendUvarint(nil, 1<<maskBits),
		"unknown function": binary.AppendUvarint(binary.AppendUvarint(nil, explicitBegin), 3<<7),
		"no begin":         append(binary.AppendUvarint(nil, 0), 0, 0),
		"many waits":       append(binary.AppendUvarint(binary.AppendUvarint(nil, explicitBegin|hasWaits), 0), 0, 0, 0xff, 0xff, 0xff, 0x7f),
		"left over":        append(binary.AppendUvarint(binary.AppendUvarint(nil, explicitBegin), 0), 0, 0, 0),
		"endless varint":   bytes.Repeat([]byte{0xff}, 40),
	} {
		if _, _, err := decode(hostileBlock(t, 1, payload)); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: error %v, want one of kind Invalid", name, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(encode(f, randomRecords(50)))
	f.Add(hostileBlock(f, 1, binary.AppendUvarint(nil, 1<<maskBits)))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, file []byte) {
		records, _, err := decode(file)
		if err != nil {
			return
		}
		for i := range records {
			if err := records[i].validate(); err != nil {
				t.Fatalf("record %d: %v: %+v", i, err, records[i])
			}
		}
	})
}

// FuzzPayload reaches the records behind the checksum.
func FuzzPayload(f *testing.F) {
	file := encode(f, randomRecords(20))
	head := len(hostileBlock(f, 1, []byte{0})) - 1
	f.Add(uint32(20), file[head:len(file)-100])
	f.Fuzz(func(t *testing.T, count uint32, payload []byte) {
		if len(payload) == 0 || len(payload) > maxBlock {
			return
		}
		_, _, _ = decode(hostileBlock(t, count, payload))
	})
}

func BenchmarkReader(b *testing.B) {
	file := encode(b, randomRecords(100_000))
	b.SetBytes(int64(len(file)))
	for b.Loop() {
		r, err := NewReader(bytes.NewReader(file))
		if err != nil {
			b.Fatal(err)
		}
		for {
			if _, err := r.Next(); err != nil {
				break
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/100_000, "ns/record")
}
