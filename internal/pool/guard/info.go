package guard

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// infoPrefix begins the lines in which a server describes itself.
var infoPrefix = []byte("INFO ")

// upstreamInfo are the fields of a server's INFO that concern the connection between the guard and the
// server, and the addresses of other servers: a client reaches no server but through the guard.
var upstreamInfo = []string{"connect_urls", "ws_connect_urls", "nonce", "auth_required", "tls_required", "tls_available", "tls_verify", "ip", "client_ip"}

// clientInfo returns the line of a server's INFO as the client gets it.
func clientInfo(line []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(line, infoPrefix), &fields); err != nil {
		return nil, fmt.Errorf("the server's INFO: %w", err)
	}
	for _, name := range upstreamInfo {
		delete(fields, name)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	return append(append(bytes.Clone(infoPrefix), text...), "\r\n"...), nil
}
