package engine

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestPrefixHashesStandForWholeBlocks(t *testing.T) {
	tokens := make([]int32, 4*PrefixBlock+5)
	for i := range tokens {
		tokens[i] = int32(i)
	}
	all := PrefixHashes("", tokens, 100)
	if len(all) != 4 || len(PrefixHashes("", tokens, 2)) != 2 || len(PrefixHashes("", tokens[:PrefixBlock-1], 9)) != 0 {
		t.Fatalf("%d hashes", len(all))
	}
	other := slices.Clone(tokens)
	other[2*PrefixBlock] = -1
	changed := PrefixHashes("", other, 100)
	if !slices.Equal(all[:2], changed[:2]) || all[2] == changed[2] || all[3] == changed[3] {
		t.Errorf("%v and %v: a block's hash stands for all tokens before its end", all, changed)
	}
	if own := PrefixHashes("key/a", tokens, 100); own[0] == all[0] || own[3] == all[3] {
		t.Errorf("%v and %v: clients with scopes of their own share no hash", own, all)
	}
	text, err := json.Marshal(all)
	var back Prefixes
	if err != nil || json.Unmarshal(text, &back) != nil || !slices.Equal(all, back) {
		t.Errorf("%s: %v, %v", text, back, err)
	}
}
