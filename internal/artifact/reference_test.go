package artifact_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
)

func TestParseReference(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	tests := map[string]struct {
		want artifact.Reference
		err  string
	}{
		"cart:v1":                              {want: artifact.Reference{Repository: "cart", Tag: "v1"}},
		"shop/cart:v1":                         {want: artifact.Reference{Repository: "shop/cart", Tag: "v1"}},
		"localhost/cart:v1":                    {want: artifact.Reference{Registry: "localhost", Repository: "cart", Tag: "v1"}},
		"localhost:5000/a/b-c.d_e:V1.0":        {want: artifact.Reference{Registry: "localhost:5000", Repository: "a/b-c.d_e", Tag: "V1.0"}},
		"registry.example.org/cart@" + digest:  {want: artifact.Reference{Registry: "registry.example.org", Repository: "cart", Digest: digest}},
		"[::1]:5000/cart:v1@" + digest:         {want: artifact.Reference{Registry: "[::1]:5000", Repository: "cart", Tag: "v1", Digest: digest}},
		"":                                     {err: `reference "": a repository has lower-case letters, digits, and single . _ - between them`},
		"cart":                                 {err: `reference "cart": it says not which version: write cart:TAG`},
		"example.org/cart":                     {err: `reference "example.org/cart": it says not which version: write example.org/cart:TAG`},
		"Cart:v1":                              {err: `reference "Cart:v1": a repository has lower-case letters, digits, and single . _ - between them`},
		"cart:":                                {err: `reference "cart:": the tag "" has other things than letters, digits, . _ and -`},
		"cart:a b":                             {err: `reference "cart:a b": the tag "a b" has other things than letters, digits, . _ and -`},
		"cart@sha256:12":                       {err: `reference "cart@sha256:12": "sha256:12" is no digest: want sha256: and 64 digits`},
		"exam ple.org/cart:v1":                 {err: `reference "exam ple.org/cart:v1": the host "exam ple.org" is none`},
		"example.org//cart:v1":                 {err: `reference "example.org//cart:v1": a repository has lower-case letters, digits, and single . _ - between them`},
		"https://registry.example.org/cart:v1": {err: `reference "https://registry.example.org/cart:v1": the host "https:" is none`},
		"registry.example.org/../../etc/x:v1":  {err: `reference "registry.example.org/../../etc/x:v1": a repository has lower-case letters, digits, and single . _ - between them`},
		"registry.example.org:123456/cart:v1":  {err: `reference "registry.example.org:123456/cart:v1": the host "registry.example.org:123456" is none`},
		"cart:" + strings.Repeat("x", 129):     {err: `reference "cart:` + strings.Repeat("x", 129) + `": the tag "` + strings.Repeat("x", 129) + `" has other things than letters, digits, . _ and -`},
	}
	for text, test := range tests {
		got, err := artifact.ParseReference(text)
		switch {
		case test.err != "":
			if err == nil || err.Error() != test.err || outboard.KindOf(err) != outboard.Invalid {
				t.Errorf("%q: got %v, want %s", text, err, test.err)
			}
		case err != nil:
			t.Errorf("%q: %v", text, err)
		default:
			if diff := cmp.Diff(test.want, got); diff != "" || got.String() != text {
				t.Errorf("%q is %q (-want +got):\n%s", text, got, diff)
			}
		}
	}
}

func FuzzParseReference(f *testing.F) {
	f.Add("localhost:5000/a/b-c.d_e:V1.0@sha256:" + strings.Repeat("0", 64))
	f.Add("shop/cart:v1")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := artifact.ParseReference(text)
		if err != nil {
			if outboard.KindOf(err) != outboard.Invalid {
				t.Errorf("%v", err)
			}
			return
		}
		if r.String() != text || strings.Contains(r.Repository, "..") || strings.ContainsAny(text, " \n\x00") {
			t.Errorf("%q is taken for %+v", text, r)
		}
	})
}
