package main

import (
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// meter measures how busy the machine was with other work while programs ran.
type meter struct {
	rig *rig.Rig
	mu  sync.Mutex
	// shares are the shares of the processors, in %, that other processes used during each run.
	shares []float64
}

// soFar returns the processor time that processes outside of the bench have used so far.
func (m *meter) soFar() (time.Duration, error) {
	all, err := rig.MachineProcessor()
	if err != nil {
		return 0, err
	}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var use syscall.Rusage
		if err := syscall.Getrusage(who, &use); err != nil {
			return 0, err
		}
		all -= time.Duration(use.Utime.Nano() + use.Stime.Nano())
	}
	for _, name := range []string{deviceNode, programNode} {
		all -= m.rig.Node(name).ProcessorOfAll()
	}
	return all, nil
}

// during calls run, and records the share of the processors that other processes used meanwhile.
func (m *meter) during(run func() error) error {
	before, err := m.soFar()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := run(); err != nil {
		return err
	}
	took := time.Since(began)
	after, err := m.soFar()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.shares = append(m.shares, 100*max(0, after-before).Seconds()/took.Seconds()/float64(runtime.NumCPU()))
	return err
}

// row returns the row that shows whether the times of the other rows can be trusted.
func (m *meter) row() paired.Row {
	row := paired.NewRow("other processes during all runs: their share of the processors", "%", "", m.shares, nil, paired.Goal{Max: 3})
	return row.Because("The machine was busy with something else. Times, and so errors, are those of its scheduler; " +
		"round trips, bytes and processor times hold.")
}
