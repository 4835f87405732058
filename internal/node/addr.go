package node

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/outboard-run/outboard"
)

// checkAddresses refuses addresses that no listener can have, and those at which no other node can
// reach this one.
func (o *Options) checkAddresses() error {
	addrs := []struct {
		setting, addr string
		optional      bool // "none" is a value
	}{
		{"listen", o.Listen, false},
		{"advertise", o.Advertise, false},
		{"routes", o.Routes, false},
		{"join", o.Join, false},
		{"grpc", o.GRPC, true},
		{"http", o.HTTP, true},
		{"models", o.Models, true},
	}
	for _, a := range addrs {
		if a.addr == "" || a.optional && a.addr == "none" {
			continue
		}
		host, port, err := splitAddress(a.addr)
		if err != nil {
			return outboard.Errorf(outboard.Invalid, "node", "--%s %q: %w: write HOST:PORT or :PORT", a.setting, a.addr, err)
		}
		ip := net.ParseIP(host)
		if a.setting == "advertise" && (port == 0 || host == "" || ip != nil && ip.IsUnspecified()) {
			return outboard.Errorf(outboard.Invalid, "node", "--advertise %q: want a host and a port at which other nodes reach this one", a.addr)
		}
	}
	return nil
}

// splitAddress returns the host and the port of an address; the port may be named.
func splitAddress(addr string) (host string, port int, err error) {
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		if detail, ok := errors.AsType[*net.AddrError](err); ok {
			err = errors.New(detail.Err)
		}
		return "", 0, err
	}
	at, err := net.ResolveTCPAddr("tcp", ":"+service) // without a host nothing is resolved but names of ports
	if err != nil {
		return "", 0, fmt.Errorf("%q is no port", service)
	}
	return host, at.Port, nil
}

// advertised returns the address at which others reach a listener: the operator's, or the
// listener's, with one of the machine's own addresses in place of "any".
func advertised(given string, addr net.Addr) string {
	if given != "" {
		return given
	}
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		host = ownAddress()
	}
	return net.JoinHostPort(host, port)
}

// ownAddress returns the first address of this machine that others may reach, or the loopback's if
// there is none.
func ownAddress() string {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return "127.0.0.1"
	}
	best := ""
	for _, a := range addrs {
		ipnet, ok := a.(*net.IPNet)
		if !ok || !ipnet.IP.IsGlobalUnicast() {
			continue
		}
		if ipnet.IP.To4() != nil {
			return ipnet.IP.String()
		}
		if best == "" {
			best = ipnet.IP.String()
		}
	}
	if best != "" {
		return best
	}
	if host, err := os.Hostname(); err == nil && host != "" && len(addrs) > 1 {
		return host
	}
	return "127.0.0.1"
}

// routesAddr returns the address at which the embedded state listens: the operator's, or the port
// after the node's, or a free port if the node's was chosen freely.
func routesAddr(given, listen string, addr net.Addr) (string, error) {
	if given != "" {
		return given, nil
	}
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "", err
	}
	_, wanted, _ := net.SplitHostPort(listen)
	if wanted == "0" || wanted == "" {
		return net.JoinHostPort(host, "0"), nil
	}
	at, ok := addr.(*net.TCPAddr)
	if !ok {
		return "", outboard.Errorf(outboard.Invalid, "node", "listen address %s: want one of TCP", addr)
	}
	if at.Port == maxPort {
		return "", outboard.Errorf(outboard.Invalid, "node", "no port is after %d of --listen: name an address with --routes", at.Port)
	}
	return net.JoinHostPort(host, strconv.Itoa(at.Port+1)), nil
}

// maxPort is the highest TCP port.
const maxPort = 1<<16 - 1

// routesAdvertised returns routes with the host at which others reach the node. It is empty if the
// port is not known yet and the host alone is enough.
func routesAdvertised(routes, node string) string {
	host, port, err := net.SplitHostPort(routes)
	if err != nil || port == "0" {
		return ""
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return ""
	}
	nodeHost, _, err := net.SplitHostPort(node)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(nodeHost, port)
}
