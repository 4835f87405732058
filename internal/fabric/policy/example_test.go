package policy_test

import (
	"fmt"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// A table of policies judges calls, and is changed between them.
func Example() {
	apply := func(table *policy.Table, text string) {
		set, err := policy.Parse("shop.yaml", []byte(text), nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		table.Apply(set, time.Now())
	}
	judge := func(table *policy.Table, tenant string) {
		x := &policy.Exchange{Head: &call.Head{Method: "/shop.Orders/Place", Tenant: tenant}, Now: time.Now()}
		chain := table.For(x.Head)
		if err := chain.Begin(x); err != nil {
			fmt.Println(tenant, err)
			return
		}
		defer chain.End(x, policy.Outcome{Now: time.Now()})
		fmt.Println(tenant, "may, within", x.Plan.Timeout)
	}

	table := &policy.Table{}
	apply(table, `policies: [{name: in-time, tenants: ["gold*"], timeout: 2s}]`)
	judge(table, "golden")
	apply(table, `policies: [{name: members, when: tenant != "golden", access: {default: deny, rules: []}}]`)
	judge(table, "guest")
	apply(table, `policies: [{name: oops, when: tenent == "golden", timeout: 1s}]`)
	// Output:
	// golden may, within 2s
	// guest rpc error: code = PermissionDenied desc = policy members: this caller may not call this
	// shop.yaml:1:31: nothing is called "tenent" here: did you mean "tenant"? There are: attempt, caller_kind, caller_name, caller_node, deadline, metadata, method, now, peer, request, service, tenant
}
