package opencl

import (
	"strings"

	"github.com/outboard-run/outboard/internal/accel/session"
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/wire"
)

// role is the meaning of a message for the session's log.
type role int

const (
	roleNone    role = iota
	roleCreate       // creates the object in its field "result"
	roleSet          // changes the object in its first field
	roleCommand      // is enqueued in the queue in its first field
	roleSync         // waits for the queue in its first field
)

// setters are the calls that change an object, and whether their second field identifies the part
// of it.
var setters = map[uint16]bool{
	opClSetKernelArg: true, opClSetKernelExecInfo: true, opClSetProgramSpecializationConstant: true, opClBuildProgram: false, opClCompileProgram: false,
	opClSetUserEventStatus: false, opClSetDefaultDeviceCommandQueue: false,
}

var roles = func() map[uint16]role {
	table := map[uint16]role{opClFinish: roleSync}
	for op, call := range TraceTable {
		_, sets := setters[op]
		n := len(call.Fields)
		switch {
		case sets:
			table[op] = roleSet
		case strings.HasPrefix(call.Name, "clEnqueue"):
			table[op] = roleCommand
		case n > 0 && call.Fields[n-1].Name == "result":
			table[op] = roleCreate
		}
	}
	return table
}()

// record passes a message to the log.
func (w *Worker) record(m *session.Message) {
	log := w.opts.Log
	switch roles[m.Op] {
	case roleCreate:
		fields, names := objectsOf(m)
		if n := len(fields); n > 0 {
			log.Create(fields[n-1], m, names)
		}
	case roleSet:
		fields, names := objectsOf(m)
		if len(fields) > 0 {
			log.Set(fields[0], slotOf(m, fields), m, names)
		}
	case roleCommand:
		if d := wire.NewDecoder(m.Body); !blockingRead(m) {
			log.Command(d.U64(), m)
		} else {
			log.Synced(d.U64())
		}
	case roleSync:
		d := wire.NewDecoder(m.Body)
		log.Synced(d.U64())
	case roleNone:
		if m.Op == opRelease {
			d := wire.NewDecoder(m.Body)
			_ = d.U64()
			log.Release(d.U64(), m)
		}
	}
}

// blockingRead reports whether m is a blocking read. On an in-order queue all earlier commands are
// done with it.
func blockingRead(m *session.Message) bool {
	switch m.Op {
	case opClEnqueueReadBuffer, opClEnqueueReadBufferRect, opClEnqueueReadImage:
		return m.Flags&session.WantReply != 0
	}
	return false
}

// slotOf returns the number of the part of an object that a call changes: one per call and, where
// it has one, part.
func slotOf(m *session.Message, fields []uint64) uint64 {
	slot := uint64(m.Op) << 32
	if setters[m.Op] && len(fields) > 1 {
		slot |= fields[1] & (1<<32 - 1)
	}
	return slot
}

// objectsOf reads the message's words, and all values that may be ids of objects.
func objectsOf(m *session.Message) (fields, names []uint64) {
	d := wire.NewDecoder(m.Body)
	for _, f := range TraceTable[m.Op].Fields {
		switch f.Form {
		case trace.Object:
			id := d.U64()
			fields, names = append(fields, id), append(names, id)
		case trace.Words:
			names = append(names, d.Words()...)
		case trace.Halves:
			d.Halves()
		case trace.Bytes:
			d.Bytes()
		default:
			v := d.U64()
			fields = append(fields, v)
			if f.Name == "object" {
				names = append(names, v)
			}
		}
	}
	return fields, names
}
