package session

import (
	"bytes"
	"cmp"
	"slices"
)

// Record is a message in a Log. The size of its bulk is recorded, not its contents: a Log does not
// restore the contents of objects.
type Record struct {
	Header
	Body []byte
}

// Log is the journal of a session: the creation and the changes of every live object, and the
// commands that were enqueued in a queue since the client last waited for it. Replayed in order on
// a fresh driver it rebuilds the session's objects.
//
// A record is kept as long as its object is live, or is named by records of another live object.
// Only one goroutine may use a Log.
type Log struct {
	limit, size int
	truncated   bool
	objects     map[uint64]*loggedObject
	commands    map[uint64][]Record
}

type loggedObject struct {
	created    *entry
	set        map[uint64]*entry
	references int // number of entries of other objects that name it
	release    *Record
}

type entry struct {
	record Record
	names  []uint64
}

// NewLog creates a log that keeps at most limit bytes.
func NewLog(limit int) *Log {
	return &Log{limit: limit, objects: make(map[uint64]*loggedObject), commands: make(map[uint64][]Record)}
}

// Complete reports whether no record was dropped because of the limit.
func (l *Log) Complete() bool { return !l.truncated }

// Create records the creation of object id, and the objects that it names.
func (l *Log) Create(id uint64, m *Message, names []uint64) {
	if e := l.entry(m, names); e != nil && l.objects[id] == nil {
		l.objects[id] = &loggedObject{created: e}
	}
}

// Set records a change of an object. It replaces the last change of the same slot.
func (l *Log) Set(id, slot uint64, m *Message, names []uint64) {
	o := l.objects[id]
	if o == nil {
		return
	}
	e := l.entry(m, names)
	if e == nil {
		return
	}
	if o.set == nil {
		o.set = make(map[uint64]*entry)
	}
	old := o.set[slot]
	o.set[slot] = e
	l.dropEntry(old)
}

// Release records that the client has released an object.
func (l *Log) Release(id uint64, m *Message) {
	o := l.objects[id]
	if o == nil || o.release != nil {
		return
	}
	o.release = &Record{Header: m.Header, Body: bytes.Clone(m.Body)}
	l.size += cost(m.Body)
	l.collect(id)
}

// Command records a command of a queue.
func (l *Log) Command(queue uint64, m *Message) {
	if !l.reserve(cost(m.Body)) {
		return
	}
	l.commands[queue] = append(l.commands[queue], Record{Header: m.Header, Body: bytes.Clone(m.Body)})
}

// Synced removes the commands of a queue: all of them are complete.
func (l *Log) Synced(queue uint64) {
	for _, r := range l.commands[queue] {
		l.size -= cost(r.Body)
	}
	delete(l.commands, queue)
}

// Records returns all records in the order of their receipt.
func (l *Log) Records() []Record {
	var all []Record
	for _, o := range l.objects {
		all = append(all, o.created.record)
		for _, e := range o.set {
			all = append(all, e.record)
		}
		if o.release != nil {
			all = append(all, *o.release)
		}
	}
	for _, commands := range l.commands {
		all = append(all, commands...)
	}
	slices.SortFunc(all, func(a, b Record) int { return cmp.Compare(a.Serial, b.Serial) })
	return all
}

// recordCost is the approximate memory of a record beside its body.
const recordCost = 200

func cost(body []byte) int { return len(body) + recordCost }

func (l *Log) reserve(size int) bool {
	if l.size+size > l.limit {
		l.truncated = true
		return false
	}
	l.size += size
	return true
}

func (l *Log) entry(m *Message, names []uint64) *entry {
	if !l.reserve(cost(m.Body)) {
		return nil
	}
	e := &entry{record: Record{Header: m.Header, Body: bytes.Clone(m.Body)}}
	for _, id := range names {
		if o := l.objects[id]; o != nil {
			o.references++
			e.names = append(e.names, id)
		}
	}
	return e
}

func (l *Log) dropEntry(e *entry) {
	if e == nil {
		return
	}
	l.size -= cost(e.record.Body)
	for _, id := range e.names {
		l.objects[id].references--
		l.collect(id)
	}
}

// collect removes an object that the client has released and no other record names.
func (l *Log) collect(id uint64) {
	o := l.objects[id]
	if o == nil || o.release == nil || o.references > 0 {
		return
	}
	delete(l.objects, id)
	l.size -= cost(o.release.Body)
	l.dropEntry(o.created)
	for _, e := range o.set {
		l.dropEntry(e)
	}
}
