package node

import (
	"net"
	"os"
	"strconv"

	"github.com/outboard-run/outboard"
)

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
		if _, _, err := net.SplitHostPort(given); err != nil {
			return "", outboard.Errorf(outboard.Invalid, "node", "routes address: %w: write HOST:PORT or :PORT", err)
		}
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
