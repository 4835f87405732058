package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// Limits of what a node may have in the table. Every node keeps all of it decoded, which takes ten
// times the memory of the text, and compares tickets, devices and grants for each lease.
const (
	maxGrants  = 4096 // of a holder, on all devices
	maxTickets = 1024 // of a holder
	maxTicket  = 16 << 10
	maxDevices = 1024 // of a node
)

// decodeTicket reads a ticket. After an error it returns a void one, which delays no request, and which
// the janitor of a node that keeps a copy of the table deletes. The mutex is held.
func decodeTicket(v *view, id string, e state.Entry) (ticket, error) {
	holder := ticketHolder(id)
	void := ticket{ID: id, Holder: holder, order: e.Revision, void: true}
	if len(e.Value) > maxTicket {
		return void, fmt.Errorf("the ticket has %d bytes, more than %d", len(e.Value), maxTicket)
	}
	var t ticket
	if err := json.Unmarshal(e.Value, &t); err != nil {
		return void, err
	}
	if t.Holder != holder {
		return void, errors.New("the ticket has another node's name")
	}
	if v.ticketsOf[holder] >= maxTickets {
		return void, fmt.Errorf("node %s has more than %d tickets", holder, maxTickets)
	}
	t.ID, t.order = id, e.Revision
	return t, nil
}

// ticketHolder returns the node in the ID of a ticket.
func ticketHolder(id string) outboard.NodeID {
	holder, _, _ := strings.Cut(id, "/")
	return outboard.NodeID(holder)
}

// checkCounts returns an error if a holder has as many leases, or as many tickets, as it may have.
func checkCounts(v *view, holder outboard.NodeID, leases, tickets int) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.grantsOf[holder]+leases > maxGrants {
		return outboard.Errorf(outboard.Exhausted, "lease a device", "node %s has %d leases, which is the limit: end some of its programs", holder, v.grantsOf[holder])
	}
	if n := v.ticketsOf[holder]; n+tickets > maxTickets {
		return outboard.Errorf(outboard.Exhausted, "lease a device", "%d requests of node %s wait for devices, which is the limit: repeat the request later", n, holder)
	}
	return nil
}

// grantKeys returns the keys of a holder's grants, also of those that this node ignores.
func grantKeys(v *view, holder outboard.NodeID) []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	var keys []string
	for device, g := range v.granted {
		if _, ok := g.holders[holder]; ok {
			keys = append(keys, leasesOf(device)+string(holder))
		}
	}
	return keys
}
