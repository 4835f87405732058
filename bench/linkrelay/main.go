// Command linkrelay forwards TCP connections to an address, and emulates a network path on each: to
// run programs with a borrowed device over an emulated network.
//
// Start the device's node with the relay's address as its own, and other nodes and their
// programs reach it through the relay:
//
//	go run ./bench/linkrelay -listen 127.0.0.1:7443 -to 127.0.0.1:7433 -link rtt=10ms,bw=1Gbps
//	outboard up --listen 127.0.0.1:7433 --advertise 127.0.0.1:7443
//
// A line on standard input, such as rtt=50ms, changes the link of later connections. Go programs
// use bench/netem's StartRelay, or a Link in the Spec of bench/rig, instead.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/outboard-run/outboard/bench/netem"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:7443", "`ADDR` to accept connections at")
	to := flag.String("to", "127.0.0.1:7433", "`ADDR` of the node")
	link := flag.String("link", "", "the path to emulate, such as rtt=10ms,bw=1Gbps,jitter=1ms")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *listen, *to, *link); err != nil {
		fmt.Fprintln(os.Stderr, "linkrelay:", err)
		os.Exit(1)
	}
}

// run relays until ctx is done.
func run(ctx context.Context, listen, to, text string) error {
	link, err := netem.ParseLink(text)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	relay := netem.StartRelay(ctx, netem.Options{Listener: listener, Link: link, Dial: func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", to)
	}})
	go followLinks(relay)
	fmt.Fprintf(os.Stderr, "linkrelay: %s to %s with %v\n", relay.Addr(), to, link)
	<-ctx.Done()
	return relay.Close()
}

// followLinks sets the link to each line of standard input, until the input ends.
func followLinks(relay *netem.Relay) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		link, err := netem.ParseLink(strings.TrimSpace(lines.Text()))
		if err != nil {
			fmt.Fprintln(os.Stderr, "linkrelay:", err)
			continue
		}
		relay.SetLink(link)
	}
}
