package guesttest_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/guesttest"
)

func TestTransactions(t *testing.T) {
	tests := map[string]struct {
		ops    []guest.Op
		failed int // -1: all hold
		want   map[string]string
	}{
		"nothing":             {nil, -1, map[string]string{"a": "5"}},
		"put and delete":      {[]guest.Op{guest.Put("b", []byte("x")), guest.Delete("a"), guest.Delete("no")}, -1, map[string]string{"b": "x"}},
		"add":                 {[]guest.Op{guest.Add("a", -2, 0), guest.Add("n", 7, 7)}, -1, map[string]string{"a": "3", "n": "7"}},
		"to the least":        {[]guest.Op{guest.Add("a", -5, 0)}, -1, map[string]string{"a": "0"}},
		"below the least":     {[]guest.Op{guest.Put("b", nil), guest.Add("a", -6, 0)}, 1, map[string]string{"a": "5"}},
		"adds see each other": {[]guest.Op{guest.Add("a", -3, 0), guest.Add("a", -3, 0)}, 1, map[string]string{"a": "5"}},
		"missing":             {[]guest.Op{guest.Missing("b"), guest.Put("b", nil)}, -1, map[string]string{"a": "5", "b": ""}},
		"not missing":         {[]guest.Op{guest.Missing("a"), guest.Put("b", nil)}, 0, map[string]string{"a": "5"}},
		"revision":            {[]guest.Op{guest.At("a", 1), guest.Put("a", []byte("y"))}, -1, map[string]string{"a": "y"}},
		"other revision":      {[]guest.Op{guest.At("a", 2), guest.Put("a", []byte("y"))}, 0, map[string]string{"a": "5"}},
		"no such key's":       {[]guest.Op{guest.At("b", 0)}, -1, map[string]string{"a": "5"}},
		"put new":             {[]guest.Op{guest.PutNew("b", []byte("y"))}, -1, map[string]string{"a": "5", "b": "y"}},
		"put for":             {[]guest.Op{guest.PutFor("b", []byte("y"), time.Second), guest.Missing("b")}, 1, map[string]string{"a": "5"}},
		"put new, and is not": {[]guest.Op{guest.PutNew("b", []byte("y")), guest.PutNew("a", []byte("y"))}, 1, map[string]string{"a": "5"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			seats := guesttest.Start(t).Bucket("seats")
			seats.Set("a", "5")
			err := guest.Bucket("seats").Txn(tt.ops...)
			failed := -1
			if condition := (*guest.ConditionError)(nil); errors.As(err, &condition) {
				failed = condition.Index
			} else if err != nil {
				t.Fatal(err)
			}
			if failed != tt.failed {
				t.Errorf("got %d (%v), want %d", failed, err, tt.failed)
			}
			if diff := cmp.Diff(tt.want, content(seats)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func content(b *guesttest.Bucket) map[string]string {
	all := map[string]string{}
	for _, key := range b.Keys() {
		all[key] = b.Value(key)
	}
	return all
}

func TestNoNumber(t *testing.T) {
	seats := guesttest.Start(t).Bucket("seats")
	seats.Set("a", "many")
	var condition *guest.ConditionError
	if err := guest.Bucket("seats").Txn(guest.Add("a", 1, 0)); err == nil || errors.As(err, &condition) {
		t.Errorf("got %v", err)
	}
}

func TestImports(t *testing.T) {
	host := guesttest.Start(t)
	host.Secrets["token"], host.Arenas["photos"] = []byte("hush"), make([]byte, 8)
	host.Values["method"] = "GET"
	host.Functions["price"] = func(b []byte) ([]byte, error) {
		if len(b) == 0 {
			return nil, errors.New("price of what?")
		}
		return append(b, '!'), nil
	}
	host.Bucket("seats").Set("a", "5")

	price := guest.Function("price")
	if got, err := price.Call([]byte("tea")); err != nil || string(got) != "tea!" {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := price.Call(nil); err == nil || err.Error() != "price of what?" {
		t.Errorf("got %v", err)
	}
	if got, err := guest.Secret("token"); err != nil || string(got) != "hush" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := guest.Arena("photos").Bytes(); err != nil || len(got) != 8 {
		t.Errorf("got %q, %v", got, err)
	}
	if got, revision, err := guest.Bucket("seats").Get("a"); err != nil || string(got) != "5" || revision != 1 {
		t.Errorf("got %q, %d, %v", got, revision, err)
	}
	if got, revision, err := guest.Bucket("seats").Get("b"); err != nil || got != nil || revision != 0 {
		t.Errorf("got %q, %d, %v", got, revision, err)
	}
	if got, ok := guest.Meta("method"); got != "GET" || !ok {
		t.Errorf("got %q, %v", got, ok)
	}
	for _, name := range []string{"function:shop", "secret:a", "arena:a", "bucket:a", "moon:a", ""} {
		if r, err := guest.Import(name); err == nil {
			t.Errorf("%s was imported as %v", name, r)
		}
	}
}

func TestClose(t *testing.T) {
	host := guesttest.Start(t)
	host.Bucket("seats")
	seats := guest.Bucket("seats")
	for range 2 { // it can be used after Close
		if err := seats.Put("a", nil); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"bucket:seats"}, host.OpenImports()); diff != "" {
			t.Error(diff)
		}
		seats.Close()
		seats.Close()
		if held := host.OpenImports(); len(held) > 0 {
			t.Errorf("%v is held", held)
		}
	}
}

func TestForgedHandles(t *testing.T) {
	host := guesttest.Start(t)
	host.Bucket("seats")
	handle, err := host.Import("bucket:seats")
	if err != nil {
		t.Fatal(err)
	}
	for _, forged := range []int32{-1, 0, handle, handle + 1} {
		if _, err := host.Secret(forged); err == nil {
			t.Errorf("handle %d is one of a secret", forged)
		}
		host.Drop(forged)
	}
}

func FuzzTxn(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 1, 0, 0, 0, 'a', 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 'h', 'i'})
	f.Add([]byte{3, 1, 0, 0, 0, 'a', 255, 255, 255, 255, 255, 255, 255, 255, 1, 0, 0, 0, '0'})
	f.Add([]byte{6, 255, 255, 255, 255, 'a'})
	f.Fuzz(func(t *testing.T, ops []byte) {
		host := guesttest.Start(t)
		seats := host.Bucket("seats")
		seats.Set("a", "1")
		handle, err := host.Import("bucket:seats")
		if err != nil {
			t.Fatal(err)
		}
		before := content(seats)
		failed, err := host.Txn(handle, ops)
		if err == nil && failed < 0 {
			return
		}
		if diff := cmp.Diff(before, content(seats)); diff != "" {
			t.Errorf("%v, but it changed (-before +after):\n%s", err, diff)
		}
		if failed >= 0 && err == nil && uint64(failed)*17 > uint64(len(ops)) {
			t.Errorf("operation %d of %d bytes failed", failed, len(ops))
		}
	})
}

// A key that is put for some time is gone then.
func TestPutFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seats := guesttest.Start(t).Bucket("seats")
		b := guest.Bucket("seats")
		must := func(ops ...guest.Op) {
			t.Helper()
			if err := b.Txn(ops...); err != nil {
				t.Error(err)
			}
		}
		must(guest.PutFor("a", []byte("5"), 2*time.Second))
		time.Sleep(time.Second)
		must(guest.Add("a", 1, 0))
		if value := seats.Value("a"); value != "6" {
			t.Errorf("got %q, want 6", value)
		}
		time.Sleep(time.Second)
		if value, revision, err := b.Get("a"); value != nil || revision != 0 || err != nil || len(seats.Keys()) != 0 {
			t.Errorf("got %q at %d, %v, keys %q", value, revision, err, seats.Keys())
		}
		must(guest.PutNew("a", []byte("1")))
		if err := b.Txn(guest.PutFor("a", nil, time.Millisecond)); err == nil {
			t.Error("a key was put for a millisecond")
		}
	})
}
