// Package offer defines the call by which a program offers its services to its node.
//
// A program calls [Method] on its connection to the node, with the services' names and its own name
// in the metadata, and a google.protobuf.FileDescriptorSet that declares the services as the
// request. The offer ends with the connection, or when the program drains the connection: then the
// node withdraws it from the pool, waits for the calls in flight and closes the connection. The
// response's header carries the endpoint's ID. A program that is asked to change to another
// connection repeats that ID there and remains the same endpoint.
package offer

import "context"

// The method and the metadata keys of an offer. They are part of the wire format.
const (
	Method      = "/outboard.fabric.v1.Node/Offer"
	ServiceKey  = "outboard-service"
	ProgramKey  = "outboard-program"
	EndpointKey = "outboard-endpoint"
	// CredentialKey proves the identity of a program to its node, on offers and on calls. The
	// node removes it.
	CredentialKey = "outboard-credential"
)

// A Credential proves the identity of a program with each of its calls; "" proves none. It
// implements credentials.PerRPCCredentials.
type Credential string

// GetRequestMetadata returns the metadata of a call.
func (c Credential) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if c == "" {
		return nil, nil
	}
	return map[string]string{CredentialKey: string(c)}, nil
}

// RequireTransportSecurity returns false: the node's sockets are local.
func (Credential) RequireTransportSecurity() bool { return false }

// UnsentKey is in the trailer of a call that one node has forwarded to another if no program
// received the call: the caller's node sends it to another endpoint.
const UnsentKey = "outboard-unsent"
