package session

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLog: a record lives as long as something that needs it.
func TestLog(t *testing.T) {
	serial := uint64(0)
	message := func() *Message {
		serial++
		return &Message{Header: Header{Serial: serial}, Body: make([]byte, 8)}
	}
	l := NewLog(4000)
	serials := func() (list []uint64) {
		for _, r := range l.Records() {
			list = append(list, r.Serial)
		}
		return list
	}
	want := func(what string, list ...uint64) {
		t.Helper()
		if diff := cmp.Diff(serials(), list); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
	}
	const context, program, kernel, buffer, queue = 10, 11, 12, 13, 14
	l.Create(context, message(), nil)               // 1
	l.Create(program, message(), []uint64{context}) // 2
	l.Set(program, 0, message(), nil)               // 3: built
	l.Create(kernel, message(), []uint64{program})  // 4
	l.Create(buffer, message(), []uint64{context})  // 5
	l.Set(kernel, 0, message(), []uint64{buffer})   // 6
	l.Set(kernel, 0, message(), []uint64{buffer})   // 7 replaces 6
	l.Command(queue, message())                     // 8
	want("all alive", 1, 2, 3, 4, 5, 7, 8)
	l.Release(program, message()) // 9
	l.Release(buffer, message())  // 10
	want("released, but the kernel needs them", 1, 2, 3, 4, 5, 7, 8, 9, 10)
	l.Synced(queue)
	want("commands are done", 1, 2, 3, 4, 5, 7, 9, 10)
	l.Release(kernel, message()) // 11
	want("the kernel takes all with it but the context", 1)
	l.Release(context, message())
	want("nothing left")
	if l.size != 0 || len(l.objects) != 0 {
		t.Errorf("an empty log keeps %d bytes, %d objects", l.size, len(l.objects))
	}
	for range 200 {
		l.Command(queue, message())
	}
	if l.Complete() || l.size > 4000 {
		t.Errorf("a full log: complete %v, %d bytes", l.Complete(), l.size)
	}
}
