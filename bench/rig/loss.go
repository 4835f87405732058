package rig

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Loss is a network path between the two nodes of a rig that loses packets at random. It carries
// frames in this process, since the kernel's emulator (netem) is not everywhere.
type Loss struct {
	sockets [2]int
	stop    context.CancelFunc
	pumps   sync.WaitGroup
}

// Lose replaces the link between the two nodes by one with a rate in bits per second, a delay in
// each direction, and a share of packets that are lost. It needs namespaces. Close the Loss before
// the rig; the nodes then have no link.
func (r *Rig) Lose(ctx context.Context, bitsPerSecond float64, delay time.Duration, share float64) (*Loss, error) {
	n, ok := r.network.(*namespaces)
	if !ok || n.count != 2 {
		return nil, errors.New("only the link between two nodes in network namespaces can lose packets")
	}
	l := &Loss{sockets: [2]int{-1, -1}}
	for i := range l.sockets {
		// Each packet is lost by itself: no segment is larger than a packet.
		for _, step := range []string{
			fmt.Sprintf("-n %s link set port%d nomaster", n.hub(), i),
			fmt.Sprintf("-n %s link set node gso_max_segs 1", n.namespace(i)),
		} {
			if err := ip(ctx, step); err != nil {
				return nil, err
			}
		}
		bucket := fmt.Sprintf("qdisc replace dev node root tbf rate %.0fbit burst %d latency 100ms", bitsPerSecond, BucketSize)
		if err := tc(ctx, n.namespace(i), bucket); err != nil {
			return nil, err
		}
		if err := inNamespace(n.hub(), func() (err error) {
			l.sockets[i], err = openFrames(fmt.Sprintf("port%d", i))
			return err
		}); err != nil {
			return nil, errors.Join(fmt.Errorf("open frames of port%d: %w", i, err), l.close())
		}
	}
	life, stop := context.WithCancel(ctx)
	l.stop = stop
	for from, to := range []int{1, 0} {
		l.carry(life, l.sockets[from], l.sockets[to], delay, share)
	}
	return l, nil
}

// openFrames opens a socket for the frames of a network device.
func openFrames(device string) (int, error) {
	netDevice, err := net.InterfaceByName(device)
	if err != nil {
		return -1, err
	}
	protocol := binary.BigEndian.Uint16(binary.NativeEndian.AppendUint16(nil, unix.ETH_P_ALL))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(protocol))
	if err != nil {
		return -1, err
	}
	second := unix.Timeval{Usec: 200_000}
	err = errors.Join(
		// A frame carries what is left to do for its checksum.
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &second),
		unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: netDevice.Index}),
	)
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// A delayedFrame is a frame on its way.
type delayedFrame struct {
	due  time.Time
	data []byte
}

// carry carries frames one way until life ends.
func (l *Loss) carry(life context.Context, from, to int, delay time.Duration, share float64) {
	way := make(chan delayedFrame, 1<<14)
	l.pumps.Go(func() {
		defer close(way)
		buf := make([]byte, 1<<17)
		for life.Err() == nil {
			size, err := unix.Read(from, buf)
			if err != nil || rand.Float64() < share {
				continue // The receive time-out, or a lost packet.
			}
			way <- delayedFrame{time.Now().Add(delay), append([]byte(nil), buf[:size]...)}
		}
	})
	l.pumps.Go(func() {
		for f := range way {
			time.Sleep(time.Until(f.due))
			_, _ = unix.Write(to, f.data) // A frame that the device refuses is lost.
		}
	})
}

// Close ends the link.
func (l *Loss) Close() error {
	l.stop()
	l.pumps.Wait()
	return l.close()
}

func (l *Loss) close() (err error) {
	for _, fd := range l.sockets {
		if fd >= 0 {
			err = errors.Join(err, unix.Close(fd))
		}
	}
	return err
}
