package bucket_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/pool/bucket"
)

// encode writes an operation as a guest does.
func encode(kind byte, key string, number int64, value string) []byte {
	b := binary.LittleEndian.AppendUint32([]byte{kind}, uint32(len(key)))
	b = append(b, key...)
	b = binary.LittleEndian.AppendUint64(b, uint64(number))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

func TestDecodeTxn(t *testing.T) {
	long := strings.Repeat("x", 1<<17)
	tests := map[string]struct {
		data []byte
		want []bucket.Op
		err  string
	}{
		"nothing": {},
		"put":     {data: encode(1, "a", 9, "v"), want: []bucket.Op{{Kind: bucket.Put, Key: "a", Value: []byte("v")}}},
		"add":     {data: encode(3, "a", -9, "-12"), want: []bucket.Op{{Kind: bucket.Add, Key: "a", Delta: -9, Least: -12}}},
		"add without least": {
			data: encode(3, "a", 1, ""),
			want: []bucket.Op{{Kind: bucket.Add, Key: "a", Delta: 1, Least: bucket.NoLeast}},
		},
		"several": {
			data: append(append(encode(2, "a/b", 0, ""), encode(4, "c.d", 0, "")...), encode(5, "e", -1, "")...),
			want: []bucket.Op{
				{Kind: bucket.Delete, Key: "a/b"},
				{Kind: bucket.Missing, Key: "c.d"},
				{Kind: bucket.Revision, Key: "e", Revision: 1<<64 - 1},
			},
		},
		"put if missing": {data: encode(6, "a", 0, ""), want: []bucket.Op{{Kind: bucket.PutIfMissing, Key: "a", Value: []byte{}}}},
		"kind 0":         {data: encode(0, "a", 0, ""), err: "kind 0 is unknown"},
		"put for": {
			data: encode(7, "a", 1500, "v"),
			want: []bucket.Op{{Kind: bucket.PutFor, Key: "a", TTL: 1500 * time.Millisecond, Value: []byte("v")}},
		},
		"put for too short":  {data: encode(7, "a", 999, ""), err: `key "a" for 999ms, want 1s to 87600h0m0s`},
		"put for too long":   {data: encode(7, "a", 1<<50, ""), err: `want 1s to 87600h0m0s`},
		"put for the past":   {data: encode(7, "a", -1, ""), err: `want 1s to 87600h0m0s`},
		"kind 8":             {data: encode(8, "a", 0, ""), err: "kind 8 is unknown"},
		"no key":             {data: encode(1, "", 0, ""), err: "a key of 0 bytes"},
		"long key":           {data: encode(1, long[:257], 0, ""), err: "a key of 257 bytes"},
		"wildcard":           {data: encode(1, "a.>", 0, ""), err: "letters, digits and"},
		"empty word":         {data: encode(1, "a..b", 0, ""), err: "dots must be between words"},
		"least is no number": {data: encode(3, "a", 0, "x"), err: `least sum "x" is no number`},
		"cut":                {data: encode(1, "a", 0, "v")[:16], err: "operation 0: it ends in the middle"},
		"only a kind":        {data: []byte{1}, err: "it ends in the middle"},
		"huge length":        {data: []byte{1, 255, 255, 255, 255, 'a'}, err: "it ends in the middle"},
		"too many bytes": {
			data: append(append(encode(1, "a", 0, long), encode(1, "b", 0, long)...), encode(1, "c", 0, "v")...),
			err:  "at most 262144: divide them between several transactions",
		},
		"too many operations": {data: []byte(strings.Repeat(string(encode(2, "a", 0, "")), 257)), err: "more than 256 operations"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := bucket.DecodeTxn(tt.data)
			if diff := cmp.Diff(got, tt.want); diff != "" {
				t.Errorf("got against want:\n%s", diff)
			}
			if tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("error %v, want %q", err, tt.err)
			}
		})
	}
}

func FuzzDecodeTxn(f *testing.F) {
	f.Add(encode(1, "a", 0, "v"))
	f.Add(append(encode(3, "a", -1, "0"), encode(6, "b", 0, "x")...))
	f.Add(encode(5, "a", 7, ""))
	f.Add(encode(7, "a", 5000, "v"))
	f.Fuzz(func(t *testing.T, data []byte) {
		ops, err := bucket.DecodeTxn(data)
		if err != nil {
			if ops != nil {
				t.Errorf("operations with the error %v", err)
			}
			return
		}
		for _, op := range ops {
			if op.Kind < bucket.Put || op.Kind > bucket.PutFor || op.Key == "" || strings.ContainsAny(op.Key, "*> \r\n\x00") {
				t.Errorf("operation %+v was let through", op)
			}
		}
	})
}
