package egress

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// Host is an entry of an app's allow-list.
type Host struct {
	// Name is a host name in lower case, "*." and a name for all names below it, or an IP
	// address.
	Name string `json:"host"`
	// Port is 0 for the ports 80 and 443.
	Port uint16 `json:"port,omitempty"`
	// Private lets the host have private addresses, as far as the operator allows them.
	Private bool `json:"private,omitempty"`
}

// hostName is a name by RFC 1123, of one label or several.
var hostName = lazyregexp.New(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*$`)

const maxName = 253

// ParseHost parses "NAME", "*.NAME", "ADDRESS", each with or without ":PORT".
func ParseHost(text string) (Host, error) {
	h := Host{Name: strings.ToLower(text)}
	if name, port, err := net.SplitHostPort(h.Name); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return Host{}, outboard.Errorf(outboard.Invalid, "", "%q: the port has to be a number from 1 to 65535", text)
		}
		h.Name, h.Port = name, uint16(n)
	}
	h.Name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(h.Name, "["), "]"), ".")
	if address, err := netip.ParseAddr(h.Name); err == nil && address.Zone() == "" {
		h.Name = address.Unmap().String()
		return h, nil
	}
	if name := strings.TrimPrefix(h.Name, "*."); len(name) > maxName || !hostName.MatchString(name) {
		return Host{}, outboard.Errorf(outboard.Invalid, "", "%q is no host: write a name, *.NAME or an address, with or without :PORT", text)
	}
	return h, nil
}

// String returns the host in the form that ParseHost reads.
func (h Host) String() string {
	if h.Port == 0 {
		return h.Name
	}
	return net.JoinHostPort(h.Name, strconv.Itoa(int(h.Port)))
}

// matches reports whether the entry allows a host, in lower case, and a port.
func (h Host) matches(name string, port uint16) bool {
	if h.Port != port && (h.Port != 0 || port != 80 && port != 443) {
		return false
	}
	below, wild := strings.CutPrefix(h.Name, "*")
	return h.Name == name || wild && len(name) > len(below) && strings.HasSuffix(name, below)
}

// Find returns the entry of an allow-list for a host and a port. If several fit, a private one
// is preferred.
func Find(hosts []Host, name string, port uint16) (Host, bool) {
	name = canonicalName(name)
	var found Host
	ok := false
	for _, h := range hosts {
		if h.matches(name, port) && (!ok || h.Private) {
			found, ok = h, true
		}
	}
	return found, ok
}

// canonicalName returns a URL's host in the form of Host.Name.
func canonicalName(name string) string {
	name = strings.TrimSuffix(strings.ToLower(name), ".")
	if address, err := netip.ParseAddr(name); err == nil {
		return address.Unmap().String()
	}
	return name
}

// list names the entries for an error.
func list(hosts []Host) string {
	if len(hosts) == 0 {
		return "none"
	}
	names := make([]string, len(hosts))
	for i, h := range hosts {
		names[i] = h.String()
	}
	return strings.Join(names, ", ")
}
