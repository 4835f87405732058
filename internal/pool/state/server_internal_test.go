package state

import (
	"cmp"
	"net/url"
	"slices"
	"testing"
)

// The routes of the server's options are in the order in which ReloadOptions sorts them in place.
func TestRoutesAreSorted(t *testing.T) {
	var e embedded
	opts, err := e.serverOptions(roleData{
		Mode: voter, Route: "127.0.0.1:7434", Routes: []string{"harbour:7434", "[::1]:7434", "dinghy:10434", "dinghy:7434"},
	})
	if err != nil {
		t.Fatal(err)
	}
	byText := func(a, b *url.URL) int { return cmp.Compare(a.String(), b.String()) }
	if len(opts.Routes) != 4 || !slices.IsSortedFunc(opts.Routes, byText) {
		t.Errorf("%v", opts.Routes)
	}
}
