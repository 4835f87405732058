package tenant

import "testing"

// What a manifest says of a bucket's time goes for whatever functions put there.
func TestBucketTTL(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: shop\nfunctions: {cart: {module: guest.wasm, imports: [{bucket: short}, {bucket: long}]}}\nbuckets: {short: {ttl: 1s}, long: }\n", nil)
	// The function adds and then reads. On a busy machine that takes longer than the second for which
	// the bucket keeps the sum, which is gone then.
	if got, err := b.call("shop/cart", "add short n 2"); err != nil || got != "2" && got != "" {
		t.Fatalf("got %q, %v, want 2", got, err)
	}
	b.mustCall("shop/cart", "add long n 2", "2")
	b.eventually(func() bool { // the sum begins anew
		got, err := b.call("shop/cart", "add short n 0")
		return err == nil && got == "0"
	})
	b.mustCall("shop/cart", "add long n 1", "3")
}
