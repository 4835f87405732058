package calls

import "github.com/outboard-run/outboard/client"

// Table returns the live table of this process's calls.
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
