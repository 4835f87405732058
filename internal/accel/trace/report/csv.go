package report

import (
	"encoding/csv"
	"errors"
	"io"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// columns are the titles of a trace as comma-separated values. Times are ns on the trace's
// clock, durations ns, sizes bytes.
var columns = []string{
	"process", "thread", "function", "class", "blocking", "command", "failed", "device", "queue", "out_of_order", "event", "waits",
	"begin_ns", "end_ns", "gap_ns", "encode_ns", "wire_forward_ns", "execute_ns", "wire_backward_ns", "blocked_ns",
	"device_start_ns", "device_ns", "forward_bytes", "backward_bytes",
}

// CSV writes a trace as comma-separated values (RFC 4180), one line for each call below a line of
// titles.
func CSV(w io.Writer, r *trace.Reader) error {
	out := csv.NewWriter(w)
	if err := out.Write(columns); err != nil {
		return err
	}
	h := r.Header()
	row := make([]string, 0, len(columns))
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		row = appendRow(row[:0], h, &record)
		if err := out.Write(row); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

func appendRow(row []string, h *trace.Header, r *trace.Record) []string {
	row = append(row,
		strconv.FormatUint(uint64(r.Process), 10), strconv.FormatUint(uint64(r.Thread), 10), h.Ops[r.Op].Name,
		r.Class.String(), r.Blocking.String(), strconv.FormatBool(r.Command), strconv.FormatBool(r.Failed),
		strconv.Itoa(int(r.Device)), strconv.FormatUint(r.Queue, 10), strconv.FormatBool(r.OutOfOrder),
		strconv.FormatUint(r.Event, 10), events(r.Waits))
	for _, t := range []int64{
		r.Begin, r.End, r.Gap, r.Encode, r.WireForward, r.Execute, r.WireBackward, r.Blocked, r.Start, r.DeviceTime,
	} {
		row = append(row, strconv.FormatInt(t, 10))
	}
	return append(row, strconv.FormatUint(r.Forward, 10), strconv.FormatUint(r.Backward, 10))
}

func events(ids []uint64) string {
	var b strings.Builder
	for i, id := range ids {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(strconv.FormatUint(id, 10))
	}
	return b.String()
}
