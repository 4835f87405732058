package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/outboard-run/outboard/bench/suite"
)

// peer is PoCL-Remote, which is measured if it is built.
type peer struct {
	server, library string
	vendors         string
}

const peerPort = "17171"

func (p *peer) isInstalled() bool { return p.server != "" && p.library != "" }

// start starts its server on the loopback device; it runs until this process ends.
func (p *peer) start(dir string) error {
	if !p.isInstalled() {
		return nil
	}
	p.vendors = filepath.Join(dir, "vendors")
	if err := os.MkdirAll(p.vendors, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(p.vendors, "pocl.icd"), []byte(p.library+"\n"), 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(context.Background(), p.server, "-a", "127.0.0.1", "-p", peerPort)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("peer: %w", err)
	}
	return nil
}

func (p *peer) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := suite.Local(ctx, name, args...)
	cmd.Env = append(os.Environ(), "OCL_ICD_VENDORS="+p.vendors+"/", "POCL_DEVICES=remote", "POCL_REMOTE0_PARAMETERS=127.0.0.1:"+peerPort+"/0")
	return cmd
}
