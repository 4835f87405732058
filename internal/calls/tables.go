package calls

import (
	"strings"

	"github.com/outboard-run/outboard/client"
)

// Table is the live table of this node's calls.
func (p *Plane) Table() []client.Calls {
	rows := []client.Calls{}
	for _, r := range p.router.Calls() {
		row := client.Calls{
			Service: r.Service, Method: r.Method, Rate: r.Rate, Errors: r.Errors,
			P50: client.Duration(r.P50), P99: client.Duration(r.P99), Sent: r.Sent, Received: r.Received,
			InFlight: r.InFlight, Total: r.Calls,
		}
		for _, a := range r.Acted {
			if row.Acted == nil {
				row.Acted = make(map[string]uint64)
			}
			row.Acted[a.Policy] = a.Calls
		}
		rows = append(rows, row)
	}
	return rows
}

// Policies are those in force on this node.
func (p *Plane) Policies() []client.Policy {
	list := []client.Policy{}
	set := p.table.Set()
	if set == nil {
		return list
	}
	for _, info := range set.Policies() {
		list = append(list, client.Policy{
			Name: info.Name, Kind: info.Kind, Applies: applies(info.Services, info.Methods, info.Tenants), When: info.When,
			Calls: info.Calls, Acted: info.Acted, Refused: info.Refused, Failed: info.Failed,
		})
	}
	return list
}

// applies says in words what a policy applies to.
func applies(services, methods, tenants []string) string {
	var parts []string
	for _, part := range []struct {
		what  string
		names []string
	}{{"services", services}, {"methods", methods}, {"tenants", tenants}} {
		if len(part.names) > 0 {
			parts = append(parts, part.what+" "+strings.Join(part.names, ","))
		}
	}
	if len(parts) == 0 {
		return "all calls"
	}
	return strings.Join(parts, "; ")
}
