package egress

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
)

// special are the prefixes that are not globally reachable (IANA's registries of special-purpose
// addresses, RFC 6890), and the prefixes that embed an IPv4 address, which could be any of the
// former. Of IPv6 it has only prefixes within globalUnicast.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"),
	netip.MustParsePrefix("127.0.0.0/8"),
	netip.MustParsePrefix("169.254.0.0/16"), // link-local, and the metadata services of clouds
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), // Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4
	netip.MustParsePrefix("3fff::/20"),
}

// private are the operator's exceptions: addresses that private entries of apps may have.
type private struct {
	prefixes []netip.Prefix
	ports    []netip.AddrPort
}

// globalUnicast is the part of IPv6 that IANA allocates for global unicast (RFC 4291, section 2.4).
// The rest is not routed, or embeds addresses of IPv4 as ::ffff:0:0:0/96 does (RFC 2765).
var globalUnicast = netip.MustParsePrefix("2000::/3")

func isSpecial(a netip.Addr) bool {
	return a.Is6() && !globalUnicast.Contains(a) ||
		slices.ContainsFunc(special, func(prefix netip.Prefix) bool { return prefix.Contains(a) })
}

// parsePrivate parses prefixes ("10.1.0.0/16"), addresses, and addresses with a port.
func parsePrivate(texts []string) (p private, err error) {
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if prefix, err := netip.ParsePrefix(text); err == nil {
			p.prefixes = append(p.prefixes, prefix.Masked())
		} else if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
			p.prefixes = append(p.prefixes, netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()))
		} else if port, err := netip.ParseAddrPort(text); err == nil && port.Addr().Zone() == "" {
			p.ports = append(p.ports, netip.AddrPortFrom(port.Addr().Unmap(), port.Port()))
		} else {
			return private{}, outboard.Errorf(outboard.Invalid, "", "%q: want a prefix such as 10.1.0.0/16, an address, or an address with a port such as 127.0.0.1:9000", text)
		}
	}
	return p, nil
}

// CheckPrivate returns an error that names the first text that is no prefix, address, or address
// with a port.
func CheckPrivate(texts []string) error {
	_, err := parsePrivate(texts)
	return err
}

func (p private) allows(at netip.AddrPort, own bool) bool {
	if slices.Contains(p.ports, at) {
		return true
	}
	return !own && slices.ContainsFunc(p.prefixes, func(prefix netip.Prefix) bool { return prefix.Contains(at.Addr()) })
}

// checkAddress returns why a connection to an address is refused, or "". own are the addresses
// of this machine.
func (p private) checkAddress(h Host, at netip.AddrPort, own []netip.Addr) string {
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	self := at.Addr().IsLoopback() || at.Addr().IsUnspecified() || slices.Contains(own, at.Addr())
	if !self && !isSpecial(at.Addr()) {
		return ""
	}
	kind, flag := "a private address", "--outgoing-private "+at.Addr().String()
	if self {
		kind, flag = "an address of this machine", "--outgoing-private "+at.String()
	}
	switch {
	case !h.Private:
		return at.Addr().String() + " is " + kind + ": an entry with `private: true` in the app's outgoing, and `outboard up " + flag + "`, allow it"
	case !p.allows(at, self):
		return at.Addr().String() + " is " + kind + ": `outboard up " + flag + "` on this node allows it"
	}
	return ""
}

// machineAddresses returns the addresses of this machine's interfaces.
func machineAddresses() ([]netip.Addr, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	var own []netip.Addr
	for _, a := range all {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return own, nil
}
