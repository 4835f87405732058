package rig

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// The token buckets of Shape: frames are long, so that nearly all counted bytes are payload of
// connections, and buckets are small, so that short messages do not pass unbounded.
const (
	frameSize = 9000
	// BucketSize is the size of each bucket, in bytes.
	BucketSize = 16 << 10
	// SegmentBucketSize is that of buckets for transfers of megabytes. A smaller bucket divides the
	// segments of up to 64 KiB, as the kernel passes them on (segmentation offload), into frames, each
	// of which wakes the receiver: it then has four times as much to compute.
	SegmentBucketSize = 128 << 10
)

// Shape bounds the rate at which each node sends, in bits per second, by a token bucket (tc-tbf(8))
// in the kernel. It needs namespaces, and can be called again; Unshape removes the bounds.
func (r *Rig) Shape(ctx context.Context, bitsPerSecond float64) error {
	n, ok := r.network.(*namespaces)
	if !ok {
		return errors.New("nodes on the loopback device have no links to bound")
	}
	for i := range n.count {
		for _, step := range []string{
			fmt.Sprintf("-n %s link set port%d mtu %d", n.hub(), i, frameSize),
			fmt.Sprintf("-n %s link set node mtu %d", n.namespace(i), frameSize),
		} {
			if err := ip(ctx, step); err != nil {
				return err
			}
		}
	}
	for i := range n.count {
		bucket := fmt.Sprintf("qdisc replace dev node root tbf rate %.0fbit burst %d latency 200ms", bitsPerSecond, BucketSize)
		if err := tc(ctx, n.namespace(i), bucket); err != nil {
			return err
		}
	}
	return nil
}

// Shape bounds the rates at which the node sends and receives, in bits per second, each by a token
// bucket of a size in bytes. It needs namespaces, and stays in force until the rig is closed.
func (n *Node) Shape(ctx context.Context, bitsPerSecond float64, bucketSize int) error {
	net, ok := n.rig.network.(*namespaces)
	if !ok {
		return errors.New("nodes on the loopback device have no links to bound")
	}
	port := fmt.Sprintf("port%d", n.index)
	for _, end := range []struct{ namespace, device string }{{net.hub(), port}, {n.namespace, "node"}} {
		if err := ip(ctx, fmt.Sprintf("-n %s link set %s mtu %d", end.namespace, end.device, frameSize)); err != nil {
			return err
		}
		if err := tc(ctx, end.namespace, fmt.Sprintf("qdisc replace dev %s root tbf rate %.0fbit burst %d latency 200ms", end.device, bitsPerSecond, bucketSize)); err != nil {
			return err
		}
	}
	return nil
}

// Unshape removes the token buckets of Shape.
func (r *Rig) Unshape(ctx context.Context) error {
	n, ok := r.network.(*namespaces)
	if !ok {
		return nil
	}
	for i := range n.count {
		if err := tc(ctx, n.namespace(i), "qdisc del dev node root"); err != nil {
			return err
		}
	}
	return nil
}

// setCongestion sets the congestion control of TCP for connections that the nodes open and accept.
func (r *Rig) setCongestion(ctx context.Context) error {
	n, ok := r.network.(*namespaces)
	if !ok || r.opts.Congestion == "" {
		return nil
	}
	for i := range n.count {
		set := inside(n.namespace(i), []string{"sysctl", "-q", "-w", "net.ipv4.tcp_congestion_control=" + r.opts.Congestion})
		if out, err := exec.CommandContext(ctx, set[0], set[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("sysctl: %w: %s", err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

func tc(ctx context.Context, namespace, args string) error {
	out, err := exec.CommandContext(ctx, "tc", strings.Fields("-n "+namespace+" "+args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("tc: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
