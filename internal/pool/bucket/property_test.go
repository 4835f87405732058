package bucket

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// model is a bucket as one would write it without thinking of speed: what each
// key has, and a number that changes whenever it is written.
type model struct {
	keys    map[string]string
	version map[string]int
	clock   int
}

func (m *model) clone() *model {
	return &model{keys: maps.Clone(m.keys), version: maps.Clone(m.version), clock: m.clock}
}

// txn does all operations or none.
func (m *model) txn(ops []Op, known map[uint64]knownRevision) (failed int) {
	try := m.clone()
	for i, op := range ops {
		if !try.op(op, known) {
			return i
		}
	}
	*m = *try
	return -1
}

// knownRevision is what a revision that a bucket has told stands for.
type knownRevision struct {
	key     string
	version int
}

func (m *model) op(op Op, known map[uint64]knownRevision) bool {
	value, exists := m.keys[op.Key]
	m.clock++
	switch op.Kind {
	case Put, PutFor: // nobody waits for an hour
		m.keys[op.Key], m.version[op.Key] = string(op.Value), m.clock
	case Delete:
		delete(m.keys, op.Key)
	case Add:
		sum, ok := new(big.Int), true
		if exists {
			sum, ok = sum.SetString(value, 10)
		}
		if !ok {
			return false
		}
		sum.Add(sum, big.NewInt(op.Delta))
		if !sum.IsInt64() || sum.Int64() < op.Least {
			return false
		}
		m.keys[op.Key], m.version[op.Key] = sum.String(), m.clock
	case Missing:
		return !exists
	case Revision:
		if op.Revision == 0 {
			return !exists
		}
		k, ok := known[op.Revision]
		return ok && exists && k.key == op.Key && k.version == m.version[op.Key]
	case PutIfMissing:
		if exists {
			return false
		}
		m.keys[op.Key], m.version[op.Key] = string(op.Value), m.clock
	}
	return true
}

// machine is two owners of one bucket, and the model.
type machine struct {
	store  *fakeStore
	owners [2]*Bucket
	model  *model
	known  map[uint64]knownRevision
	faults []fault
}

func newMachine(t *rapid.T) *machine {
	m := &machine{
		store: newFakeStore(), known: map[uint64]knownRevision{},
		model: &model{keys: map[string]string{}, version: map[string]int{}},
	}
	m.store.fault = func() fault {
		if len(m.faults) == 0 {
			return none
		}
		f := m.faults[0]
		m.faults = m.faults[1:]
		return f
	}
	for i := range m.owners {
		m.owners[i] = openFake(t, m.store)
	}
	return m
}

func openFake(t interface{ Fatal(...any) }, s store) *Bucket {
	opts := Options{}
	opts.setDefaults()
	b, err := open(context.Background(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (m *machine) close() {
	for _, b := range m.owners {
		b.Close()
	}
}

func (m *machine) drawOp(t *rapid.T) Op {
	op := Op{
		Kind: OpKind(rapid.IntRange(1, 7).Draw(t, "kind")),
		Key:  rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key"),
	}
	switch op.Kind {
	case Put, PutIfMissing, PutFor:
		op.TTL = time.Hour
		op.Value = []byte(rapid.SampledFrom([]string{"1", "-7", "text", "", "9223372036854775807"}).Draw(t, "value"))
	case Add:
		op.Delta = rapid.SampledFrom([]int64{1, -1, 5, -1 << 63, 1<<63 - 1}).Draw(t, "delta")
		op.Least = rapid.SampledFrom([]int64{0, NoLeast, -3}).Draw(t, "least")
	case Revision:
		if len(m.known) > 0 && rapid.Bool().Draw(t, "known") {
			op.Revision = rapid.SampledFrom(sortedKeys(m.known)).Draw(t, "revision")
		}
	case Delete, Missing:
	}
	return op
}

func sortedKeys(m map[uint64]knownRevision) []uint64 {
	var keys []uint64
	for k := range 1000 {
		if _, ok := m[uint64(k)]; ok {
			keys = append(keys, uint64(k))
		}
	}
	return keys
}

func (m *machine) txn(t *rapid.T) {
	owner := m.owners[rapid.IntRange(0, 1).Draw(t, "owner")]
	ops := make([]Op, rapid.IntRange(1, 4).Draw(t, "n"))
	for i := range ops {
		ops[i] = m.drawOp(t)
	}
	m.faults = rapid.SliceOfN(rapid.Map(rapid.IntRange(0, int(nofaults)-1), func(i int) fault { return fault(i) }), 0, 3).Draw(t, "faults")
	commits := m.store.commitCount()
	failed, err := owner.Txn(t.Context(), ops)
	m.faults = nil
	before := m.model.clone()
	want := m.model.txn(ops, m.known)
	switch {
	case errors.Is(err, errInjected):
		// It was made or it was not: the content alone does not tell, since a key may be set to
		// the value that it has.
		if m.store.commitCount() == commits {
			m.model = before
		}
	case err != nil:
		t.Fatal(err)
	case failed != want:
		t.Fatalf("%v: condition %d failed, want %d", ops, failed, want)
	}
	if diff := cmp.Diff(m.store.content(), m.model.keys); diff != "" {
		t.Fatalf("%v: stream against model:\n%s", ops, diff)
	}
}

func (m *machine) get(t *rapid.T) {
	owner := m.owners[rapid.IntRange(0, 1).Draw(t, "owner")]
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")
	e, err := owner.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	value, exists := m.model.keys[key]
	if string(e.Value) != value || (e.Revision != 0) != exists {
		t.Fatalf("%s is %q at %d, want %q", key, e.Value, e.Revision, value)
	}
	if exists {
		m.known[e.Revision] = knownRevision{key: key, version: m.model.version[key]}
	}
}

func (m *machine) reopen(t *rapid.T) {
	i := rapid.IntRange(0, 1).Draw(t, "owner")
	m.owners[i].Close()
	m.owners[i] = openFake(t, m.store)
}

// Two owners that take turns, while commits fail in all ways, are one bucket.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t)
		defer m.close()
		t.Repeat(map[string]func(*rapid.T){"txn": m.txn, "get": m.get, "reopen": m.reopen})
	})
}

// Two owners that race, while commits fail in all ways: each request takes one
// seat, and no more are taken than there are.
func TestRace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const requests, callers, seats = 40, 8, 25
		s := newFakeStore()
		var mu sync.Mutex
		faults := rapid.SliceOfN(rapid.IntRange(0, int(nofaults)-1), 0, 50).Draw(t, "faults")
		s.fault = func() fault {
			mu.Lock()
			defer mu.Unlock()
			if len(faults) == 0 {
				return none
			}
			f := faults[0]
			faults = faults[1:]
			return fault(f)
		}
		owners := [2]*Bucket{openFake(t, s), openFake(t, s)}
		defer owners[0].Close()
		defer owners[1].Close()
		seed := []Op{{Kind: PutIfMissing, Key: "seats", Value: []byte(strconv.Itoa(seats))}}
		for {
			if _, err := owners[0].Txn(t.Context(), seed); err == nil {
				break
			}
		}
		var wg sync.WaitGroup
		for caller := range callers {
			wg.Go(func() {
				for i := range requests / callers * 2 {
					// Every request comes twice, and again after an error.
					id := fmt.Sprint("r", (caller*requests/callers+i)%requests)
					for !request(t.Context(), owners[(caller+i)%2], id) {
					}
				}
			})
		}
		wg.Wait()
		content := s.content()
		if left := content["seats"]; left != "0" {
			t.Fatalf("%s seats are left, want 0", left)
		}
		if enrolled := len(content) - 1; enrolled != seats {
			t.Fatalf("%d are enrolled in %d seats", enrolled, seats)
		}
	})
}

func request(ctx context.Context, b *Bucket, id string) (answered bool) {
	_, err := b.Txn(ctx, []Op{{Kind: PutIfMissing, Key: id}, {Kind: Add, Key: "seats", Delta: -1}})
	return err == nil
}

// Many transactions that one commit decides are as good as one after the other.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{known: map[uint64]knownRevision{}, model: &model{keys: map[string]string{}, version: map[string]int{}}}
		v := &view{keys: map[string]Entry{}}
		for round := range 3 {
			p := newPlan(v, time.Now())
			for range rapid.IntRange(0, 8).Draw(t, "transactions") {
				ops := make([]Op, rapid.IntRange(1, 4).Draw(t, "n"))
				for i := range ops {
					ops[i] = m.drawOp(t)
				}
				if got, want := p.txn(ops), m.model.txn(ops, m.known); got != want {
					t.Fatalf("%v: condition %d failed, want %d", ops, got, want)
				}
			}
			m.applied(t, v, p, uint64(round*100))
		}
	})
}

// applied takes the plan's changes over, and compares.
func (m *machine) applied(t *rapid.T, v *view, p *plan, first uint64) {
	size := 0
	for i, c := range p.changes {
		size += len(c.Key) + len(c.Value)
		v.set(c.Key, Entry{c.Value, first + uint64(i) + 1, c.ExpiresMilli}, c.Deleted)
	}
	if size != p.size {
		t.Fatalf("the plan has %d bytes, and says %d", size, p.size)
	}
	got, bytes := map[string]string{}, int64(0)
	for key, e := range v.keys {
		got[key] = string(e.Value)
		bytes += sizeOf(key, e.Value)
		m.known[e.Revision] = knownRevision{key: key, version: m.model.version[key]}
	}
	if diff := cmp.Diff(got, m.model.keys); diff != "" {
		t.Fatalf("view against model:\n%s", diff)
	}
	if bytes != v.bytes {
		t.Fatalf("the view has %d bytes, and says %d", bytes, v.bytes)
	}
}
