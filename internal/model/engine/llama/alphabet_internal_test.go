package llama

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPlainTextOutsideSpecialTokens(t *testing.T) {
	a := &alphabet{characters: map[string]bool{}, special: map[string]bool{}}
	for _, text := range []string{"<s>", "<s><", "ab", "bc", " x", "aa"} {
		a.add(text, attributeControl)
	}
	a.add("uu", attributeUserDefined)
	for _, c := range []struct {
		text    string
		special bool
		want    []string
	}{
		{"", true, nil},
		{"1<s>2<s>", true, []string{"1", "2"}},
		{"1<s>2", false, []string{"1<s>2"}},
		{"1uu2", false, []string{"1", "2"}},
		{"1abc2", true, []string{"1abc2"}},          // ab or bc
		{"1aaa2", true, []string{"1aaa2"}},          // the first two or the last two
		{"1<s><2", true, []string{"1<s><2"}},        // either of two
		{"<s>1 x", true, []string{"1 x"}},           // another token may drop the space
		{"1abc2<s>3", true, []string{"1abc2", "3"}}, // what follows is certain
		{"<s>abuu", true, nil},                      // adjacent ones do not overlap
		{"1<", true, []string{"1<"}},
	} {
		if diff := cmp.Diff(c.want, slices.Collect(a.plain(c.text, c.special))); diff != "" {
			t.Errorf("%q: %s", c.text, diff)
		}
	}
}

func TestSpacePrefixIsChecked(t *testing.T) {
	a := &alphabet{characters: map[string]bool{"a": true}, special: map[string]bool{}, prefixed: true}
	if a.check("a", true) == nil || a.check("", true) != nil {
		t.Error("the space that the tokenizer adds is not checked")
	}
	if a.add(space, 0); a.check("a a", true) != nil {
		t.Error("a space that is a token is refused")
	}
	a.add("<0xC3>", 0)
	if a.check("ö", true) == nil {
		t.Error("a character of which one byte has a token passes")
	}
	if a.add("<0xB6>", 0); a.check("ö", true) != nil {
		t.Error("a character of which all bytes have tokens is refused")
	}
}
