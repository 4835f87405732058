package bucket

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

const testTTL = 5 * time.Second

// wantA says what the key "a" has, for an owner and for one that opens the bucket now.
func wantA(t *testing.T, s *fakeStore, b *Bucket, value string) {
	t.Helper()
	late := openFake(t, s)
	defer late.Close()
	for _, b := range []*Bucket{b, late} {
		e, err := b.Get(t.Context(), "a")
		if err != nil || string(e.Value) != value || (e.Revision != 0) != (value != "") {
			t.Errorf("got %q at %d, %v, want %q", e.Value, e.Revision, err, value)
		}
		keys, err := b.Keys(t.Context(), "")
		if err != nil || (len(keys) == 1) != (value != "") {
			t.Errorf("got the keys %q, %v, for the value %q", keys, err, value)
		}
	}
}

// A key that is put for some time is there until then, and gone after that, for
// conditions, sums and readers alike.
func TestExpire(t *testing.T) {
	again := func(k OpKind) []Op { return []Op{{Kind: k, Key: "a", TTL: testTTL, Delta: 1, Value: []byte("7")}} }
	for name, tt := range map[string]struct {
		ops         []Op   // at three seconds
		after, late string // then, and at six seconds
	}{
		"left alone":  {nil, "7", ""},
		"put again":   {again(PutFor), "7", "7"},
		"put to stay": {[]Op{{Kind: Put, Key: "a", Value: []byte("7")}}, "7", "7"},
		"added to":    {again(Add), "8", ""},
		"deleted":     {again(Delete), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeStore()
				b := openFake(t, s)
				defer b.Close()
				do := func(want int, ops ...Op) {
					t.Helper()
					if failed, err := b.Txn(t.Context(), ops); failed != want || err != nil {
						t.Errorf("condition %d, %v, want %d", failed, err, want)
					}
				}
				do(-1, again(PutFor)...)
				time.Sleep(3 * time.Second)
				do(0, Op{Kind: Missing, Key: "a"})
				do(-1, tt.ops...)
				wantA(t, s, b, tt.after)
				time.Sleep(3 * time.Second)
				wantA(t, s, b, tt.late)
				if b.view.bytes != 0 && tt.late == "" {
					t.Errorf("what is gone takes %d bytes", b.view.bytes)
				}
				if tt.late == "" {
					do(-1, Op{Kind: PutIfMissing, Key: "a", Value: []byte("9")})
					wantA(t, s, b, "9")
				}
			})
		})
	}
}

// Keys that are put again and again need no more room for it.
func TestExpireOften(t *testing.T) {
	v := view{keys: map[string]Entry{}}
	now := time.Now()
	for i := range 10 * spare {
		v.set("a"+strconv.Itoa(i%3), Entry{Revision: uint64(i), ExpiresMilli: now.UnixMilli() + int64(i)}, false)
	}
	if n := len(v.expiring); n > spare+6 {
		t.Errorf("%d expirations for 3 keys", n)
	}
	v.forget(now.Add(time.Hour))
	if len(v.keys) != 0 || v.bytes != 0 || len(v.expiring) != 0 {
		t.Errorf("left are %v, %d bytes, %d expirations", v.keys, v.bytes, len(v.expiring))
	}
}

// What a bucket's manifest says of time goes for puts, new sums and new keys, too.
func TestExpireByDefault(t *testing.T) {
	for name, op := range map[string]Op{
		"put":     {Kind: Put, Value: []byte("7")},
		"put new": {Kind: PutIfMissing, Value: []byte("7")},
		"added":   {Kind: Add, Delta: 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newFakeStore()
				b := openFake(t, s)
				defer b.Close()
				op.Key, op.TTL = "a", testTTL
				if failed, err := b.Txn(t.Context(), []Op{op}); failed != -1 || err != nil {
					t.Fatalf("condition %d, %v", failed, err)
				}
				time.Sleep(3 * time.Second)
				wantA(t, s, b, "7")
				time.Sleep(3 * time.Second)
				wantA(t, s, b, "")
			})
		})
	}
}
