package policy

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
)

func TestAccess(t *testing.T) {
	text := `
policies:
- name: who
  access:
    default: deny
    code: UNAUTHENTICATED
    rules:
    - deny: {tenants: [blocked, "evil-*"]}
    - allow: {tenants: [gold], methods: ["Pl*"]}
    - allow: {services: [shop.Search]}
    - allow: {peers: ["10.0.*"], when: metadata[?"x-admin"].orValue("") == "yes"}
    - deny: {when: request.total > 1000}
    - allow: {tenants: [silver]}
`
	s := parsed(t, text[:0]+replace(text, "when: request.total", "methods: [Place], when: request.total"))
	_ = s
}

func replace(s, _, _ string) string { return s }

func TestKinds(t *testing.T) {
	admin := metadata.Pairs("x-admin", "yes")
	big := encoded(t, "Order", `total: 5000`)
	small := encoded(t, "Order", `total: 5`)
	access := `
policies:
- name: who
  services: [shop.Orders]
  access:
    default: deny
    code: UNAUTHENTICATED
    rules:
    - deny: {tenants: [blocked, "evil-*"]}
    - allow: {tenants: [gold], methods: ["Pl*"]}
    - allow: {peers: ["10.0.*"], when: 'metadata[?"x-admin"].orValue("") == "yes"'}
    - deny: {when: request.total > 1000}
    - allow: {tenants: [silver]}
`
	type want struct {
		Code  codes.Code
		Asked int
	}
	tests := map[string]struct {
		visit visit
		want  want
	}{
		"exact":                 {visit{tenant: "blocked"}, want{codes.Unauthenticated, 0}},
		"pattern":               {visit{tenant: "evil-twin"}, want{codes.Unauthenticated, 0}},
		"two dimensions":        {visit{tenant: "gold"}, want{codes.OK, 0}},
		"one of two dimensions": {visit{tenant: "gold", method: "/shop.Orders/Change", payload: small}, want{codes.Unauthenticated, 1}},
		"condition on metadata": {visit{peer: "10.0.0.7", metadata: admin, payload: big}, want{codes.OK, 0}},
		"condition that fails":  {visit{peer: "10.0.0.7", tenant: "silver", payload: small}, want{codes.OK, 1}},
		"condition on a field":  {visit{tenant: "silver", payload: big}, want{codes.Unauthenticated, 1}},
		"default":               {visit{tenant: "nobody", payload: small}, want{codes.Unauthenticated, 1}},
		"not decodable":         {visit{tenant: "silver", payload: []byte{0xff}}, want{codes.InvalidArgument, 1}},
		"other service":         {visit{tenant: "blocked", method: find}, want{codes.OK, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.visit.run(parsed(t, access))
			if diff := cmp.Diff(want{code(err), test.visit.asked}, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s\n%v", diff, err)
			}
		})
	}
}

var _ = time.Second
