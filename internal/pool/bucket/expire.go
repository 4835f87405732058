package bucket

import (
	"container/heap"
	"time"
)

// expiring is a heap of keys, ordered by expiry.
type expiring []expiration

type expiration struct {
	at  int64 // in milliseconds since 1970
	key string
}

// spare is the number of obsolete entries that the heap may have in any case.
const spare = 1000

// expires adds a key to the heap. It rebuilds the heap when most entries are obsolete.
func (v *view) expires(key string, e Entry) {
	heap.Push(&v.expiring, expiration{e.ExpiresMilli, key})
	if len(v.expiring) <= 2*len(v.keys)+spare {
		return
	}
	v.expiring = v.expiring[:0]
	for key, e := range v.keys {
		if e.ExpiresMilli != 0 {
			v.expiring = append(v.expiring, expiration{e.ExpiresMilli, key})
		}
	}
	heap.Init(&v.expiring)
}

// due reports whether the first entry has expired.
func (v *view) due(now time.Time) bool {
	return len(v.expiring) > 0 && v.expiring[0].at <= now.UnixMilli()
}

// forget removes the expired keys.
func (v *view) forget(now time.Time) {
	for v.due(now) {
		x, _ := heap.Pop(&v.expiring).(expiration) // nothing else is in it
		if v.keys[x.key].expired(now) {
			v.remove(x.key)
		}
	}
}

// Len, Less, Swap, Push and Pop are for package heap.

func (x expiring) Len() int           { return len(x) }
func (x expiring) Less(i, j int) bool { return x[i].at < x[j].at }
func (x expiring) Swap(i, j int)      { x[i], x[j] = x[j], x[i] }

func (x *expiring) Push(e any) {
	one, _ := e.(expiration) // as above
	*x = append(*x, one)
}

func (x *expiring) Pop() any {
	last := len(*x) - 1
	one := (*x)[last]
	(*x)[last] = expiration{}
	*x = (*x)[:last]
	return one
}
