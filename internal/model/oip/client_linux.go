package oip

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc/peer"

	"github.com/outboard-run/outboard"
)

// userOf returns the user of the process at the other end of a request's connection. The user is
// known only for connections over a loopback address: other machines share no memory with this one.
func userOf(ctx context.Context) (uid uint32, err error) {
	client, server, ok := endsOf(ctx)
	if !ok || !client.Addr().IsLoopback() {
		return 0, outboard.Errorf(outboard.Denied, "shared memory",
			"it is for clients of this machine that connect to the address of --models over 127.0.0.1: send the data in the request")
	}
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if uid, ok := findSocket(table, client, server); ok {
			return uid, nil
		}
	}
	return 0, outboard.Errorf(outboard.Denied, "shared memory", "the connection of the client has no known user")
}

// endsOf returns the two ends of a request's TCP connection.
func endsOf(ctx context.Context) (client, server netip.AddrPort, ok bool) {
	local, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	remote, _ := ctx.Value(remoteKey{}).(string)
	if p, isGRPC := peer.FromContext(ctx); isGRPC && remote == "" {
		if remote = p.Addr.String(); local == nil {
			local = p.LocalAddr
		}
	}
	if local == nil {
		return client, server, false
	}
	client, errClient := netip.ParseAddrPort(remote)
	server, errServer := netip.ParseAddrPort(local.String())
	return unmapped(client), unmapped(server), errClient == nil && errServer == nil
}

func unmapped(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// remoteKey is the key of the client's address in the context of an HTTP request.
type remoteKey struct{}

// withRemote returns a request whose context has the client's address.
func withRemote(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), remoteKey{}, r.RemoteAddr))
}

// findSocket returns the user of a connected socket in a table of the kernel (proc_pid_net(5)).
func findSocket(table string, local, remote netip.AddrPort) (uid uint32, ok bool) {
	f, err := os.Open(table)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid ...
		fields := strings.Fields(lines.Text())
		if len(fields) < 8 || fields[3] != established {
			continue
		}
		from, okFrom := kernelAddr(fields[1])
		to, okTo := kernelAddr(fields[2])
		if !okFrom || !okTo || from != local || to != remote {
			continue
		}
		n, err := strconv.ParseUint(fields[7], 10, 32)
		return uint32(n), err == nil
	}
	return 0, false
}

// established is the state TCP_ESTABLISHED in the kernel's tables.
const established = "01"

// kernelAddr parses ADDRESS:PORT in hexadecimal, the address in words of the machine's order.
func kernelAddr(text string) (netip.AddrPort, bool) {
	address, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(address)
	if err != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := raw; len(word) > 0; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok && err == nil
}
