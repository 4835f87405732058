package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
)

func TestRewriteMetadata(t *testing.T) {
	s := parsed(t, `
policies:
- name: one
  rewrite:
    metadata:
      remove: [cookie, x-gone]
      set: {x-tenant: tenant + "!", x-old: 'metadata[?"cookie"].orValue("none")'}
      append: {via: '"outboard"'}
- name: two
  rewrite: {metadata: {set: {x-second: 'metadata["x-tenant"]'}}}
`)
	before := metadata.Pairs("cookie", "c", "via", "a", "other", "o")
	v := &visit{tenant: "t", metadata: before.Copy()}
	x, err := v.run(s)
	if err != nil {
		t.Fatal(err)
	}
	want := metadata.MD{"x-tenant": {"t!"}, "x-old": {"c"}, "via": {"a", "outboard"}, "other": {"o"}, "x-second": {"t!"}}
	if diff := cmp.Diff(x.Head.Metadata, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(v.metadata, before); diff != "" {
		t.Errorf("the caller's metadata was changed (-got +want):\n%s", diff)
	}
	if v.asked != 0 || x.Plan.Payload != nil {
		t.Error("the request was touched")
	}
}

func TestRewriteRequest(t *testing.T) {
	all := `set: {user: tenant, total: request.total * 2, address.country: '"CH"', express: "true", small: "7", weight: "1.5", count: 3u, state: "1", blob: 'b"xy"'}`
	tests := map[string]struct {
		rules, before, after string
		code                 codes.Code
	}{
		"all kinds": {
			all, `user: "u" total: 21 items { sku: "s" }`,
			`user: "t" total: 42 items { sku: "s" } address { country: "CH" } express: true small: 7 weight: 1.5 count: 3 state: PAID blob: "xy"`, 0,
		},
		"remove":           {"remove: [user, items, address.country]", `user: "u" items { sku: "s" } total: 1`, `total: 1`, 0},
		"remove in nested": {"remove: address.country", `address { country: "DE" }`, `address {}`, 0},
		"remove, then set": {"set: {address.country: '\"CH\"'}, remove: [address]", `address { country: "DE" }`, `address { country: "CH" }`, 0},
		"too great":        {"set: {small: request.total}", `total: 4294967296`, ``, codes.InvalidArgument},
		"too great a u32":  {"set: {count: uint(request.total)}", `total: 4294967296`, ``, codes.InvalidArgument},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := parsed(t, "policies: [{name: r, failure: deny, services: [shop.Orders], rewrite: {request: {"+test.rules+"}}}]")
			v := &visit{tenant: "t", payload: encoded(t, "Order", test.before)}
			x, err := v.run(s)
			if code(err) != test.code {
				t.Fatalf("got %v", err)
			}
			if err != nil {
				return
			}
			got := message(t, "Order", "")
			if err := proto.Unmarshal(x.Plan.Payload, got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, message(t, "Order", test.after), protocmp.Transform()); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
			if v.asked != 1 {
				t.Errorf("the payload was asked for %d times", v.asked)
			}
		})
	}
}

// TestRewriteSeen holds that later policies see what earlier ones wrote, and that a
// message that another goroutine may read is not changed.
func TestRewriteSeen(t *testing.T) {
	s := parsed(t, `
policies:
- {name: a, methods: [Place], rewrite: {request: {set: {total: request.total + 1}}}}
- {name: b, methods: [Place], rewrite: {request: {set: {total: request.total * 10}}}}
- {name: c, methods: [Place], when: request.total != 50, access: {rules: []}}
`)
	v := &visit{}
	x := v.exchange()
	mine := message(t, "Order", `total: 4`)
	asked := 0
	x.Request = func() (protoreflect.Message, error) {
		asked++
		return mine, nil
	}
	if err := s.For(x.Head).Begin(x); err != nil {
		t.Fatal(err)
	}
	got := message(t, "Order", "")
	if err := proto.Unmarshal(x.Plan.Payload, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got, message(t, "Order", `total: 50`), protocmp.Transform()); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(mine, message(t, "Order", `total: 4`), protocmp.Transform()); diff != "" || asked != 1 || v.asked != 0 {
		t.Errorf("the caller's message was changed, or asked for %d times, its bytes %d times: %s", asked, v.asked, diff)
	}
}

func TestRewriteUnknownFields(t *testing.T) {
	s := parsed(t, `policies: [{name: a, methods: [Place], rewrite: {request: {set: {total: "7"}}}}]`)
	unknown := []byte{0xf8, 0x07, 0x2a} // field 127: 42
	x, err := (&visit{payload: unknown}).run(s)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(encoded(t, "Order", `total: 7`), unknown...); !cmp.Equal(x.Plan.Payload, want) {
		t.Errorf("got % x, want % x", x.Plan.Payload, want)
	}
}

func TestRewriteResponse(t *testing.T) {
	s := parsed(t, `
policies:
- name: out
  services: [shop.Orders]
  rewrite:
    header: {set: {x-for: request.user}, remove: [server]}
    trailer: {append: {x-took: 'response["x-load"] + "%"'}}
- {name: other, tenants: [nobody], rewrite: {header: {set: {x-never: '""'}}}}
`)
	v := &visit{tenant: "t", payload: encoded(t, "Order", `user: "ann"`)}
	x, c, err := v.begin(s)
	if err != nil || !x.Plan.Rewrites {
		t.Fatal(err, x.Plan.Rewrites)
	}
	header, trailer, err := c.Response(x, metadata.Pairs("server", "s", "a", "b"), nil)
	if diff := cmp.Diff(header, metadata.Pairs("a", "b", "x-for", "ann")); diff != "" || err != nil || trailer != nil {
		t.Errorf("header (-got +want):\n%s\n%v %v", diff, trailer, err)
	}
	given := metadata.Pairs("x-load", "5")
	_, trailer, err = c.Response(x, nil, given)
	if diff := cmp.Diff(trailer, metadata.Pairs("x-load", "5", "x-took", "5%")); diff != "" || err != nil {
		t.Errorf("trailer (-got +want):\n%s\n%v", diff, err)
	}
	if len(given) != 1 {
		t.Error("the given trailer was changed")
	}
}

// TestRewriteControl refuses what would be no metadata any more.
func TestRewriteControl(t *testing.T) {
	s := parsed(t, `policies: [{name: a, methods: [Place], failure: deny, rewrite: {metadata: {set: {x: request.user}}}}]`)
	if _, err := (&visit{payload: encoded(t, "Order", `user: "a\r\nb: c"`)}).run(s); code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

// TestRewriteWhole lets a policy fail at its second half: nothing of the first stays.
func TestRewriteWhole(t *testing.T) {
	s := parsed(t, `
policies:
- name: a
  services: [shop.Orders]
  rewrite: {metadata: {set: {x: tenant}}, request: {set: {total: "1", small: request.total}}}
`)
	x, err := (&visit{tenant: "t", payload: encoded(t, "Order", `total: 4294967296`)}).run(s)
	if err != nil || x.Plan.Payload != nil || len(x.Head.Metadata) != 0 || len(x.Plan.Acted) != 0 {
		t.Errorf("got %v, %v, %v, %v", err, x.Plan.Payload, x.Head.Metadata, x.Plan.Acted)
	}
}

// TestNotEncodable lets the request become what cannot be encoded, behind a policy
// that counts calls.
func TestNotEncodable(t *testing.T) {
	s := parsed(t, `
policies:
- {name: c, concurrency: {limit: 1}}
- {name: a, services: [shop.Orders], rewrite: {request: {set: {user: 'metadata["x-bin"]'}}}}
`)
	v := &visit{metadata: metadata.MD{"x-bin": {"\xff"}}}
	if _, _, err := v.begin(s); code(err) != codes.Internal || inFlight(s) != 0 {
		t.Errorf("got %v, and %d calls are counted", err, inFlight(s))
	}
}
