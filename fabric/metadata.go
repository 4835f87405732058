package fabric

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// reserved reports whether key belongs to gRPC or to the fabric: values that a program sets there
// are dropped.
func reserved(key string) bool {
	if key != "" && key[0] == ':' {
		return true
	}
	switch key {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding",
		"grpc-message", "grpc-status", "grpc-timeout", "te",
		transit.StreamKey, transit.MoveKey, offer.UnsentKey:
		return true
	}
	return false
}

// outgoing returns the metadata that the program sends by ctx.
func outgoing(ctx context.Context) (metadata.MD, error) {
	md, ok := metadata.FromOutgoingContext(ctx)
	if !ok {
		return nil, nil
	}
	if err := validate(md); err != nil {
		return nil, err
	}
	return withoutReserved(md), nil
}

// withoutReserved deletes the reserved keys from md, which the caller owns.
func withoutReserved(md metadata.MD) metadata.MD {
	for k := range md {
		if reserved(k) {
			delete(md, k)
		}
	}
	return md
}

func validate(md metadata.MD) error {
	for k, values := range md {
		if err := validatePair(k, values...); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
	}
	return nil
}

func validatePair(key string, values ...string) error {
	if err := validateKey(key); err != nil || strings.HasSuffix(key, "-bin") {
		return err
	}
	for _, v := range values {
		if strings.ContainsFunc(v, unprintable) {
			return fmt.Errorf("header key %q contains value with non-printable ASCII characters", key)
		}
	}
	return nil
}

func validateKey(key string) error {
	if key == "" {
		return fmt.Errorf("there is an empty key in the header")
	}
	if key[0] != ':' && strings.ContainsFunc(key, illegalKeyRune) {
		return fmt.Errorf("header key %q contains illegal characters not in [0-9a-z-_.]", key)
	}
	return nil
}

func unprintable(r rune) bool { return r < 0x20 || r > 0x7e }

func illegalKeyRune(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_'
}

// authorize adds the metadata of the credentials to md.
func (c *ClientConn) authorize(ctx context.Context, l *link, method string, i *callInfo, md metadata.MD) (metadata.MD, error) {
	if len(c.options.credentials) == 0 && i.creds == nil {
		return md, nil
	}
	if md == nil {
		md = metadata.MD{}
	}
	ctx = credentials.NewContextWithRequestInfo(ctx, credentials.RequestInfo{Method: method, AuthInfo: l.authInfo()})
	uri := "https://" + c.target + method[:max(strings.LastIndexByte(method, '/'), 0)]
	for _, creds := range c.options.credentials {
		if err := addCredentials(ctx, creds, uri, md, codes.Unauthenticated, l.secure()); err != nil {
			return nil, err
		}
	}
	if i.creds == nil {
		return md, nil
	}
	return md, addCredentials(ctx, i.creds, uri, md, codes.Internal, l.secure())
}

func addCredentials(ctx context.Context, c credentials.PerRPCCredentials, uri string, md metadata.MD, otherwise codes.Code, secure bool) error {
	if c.RequireTransportSecurity() && !secure {
		return status.Error(codes.Unauthenticated, "transport: cannot send secure credentials on an insecure connection")
	}
	data, err := c.GetRequestMetadata(ctx, uri)
	if err != nil {
		return credentialsError(err, otherwise)
	}
	for k, v := range data {
		k = strings.ToLower(k)
		if err := validatePair(k, v); err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if !reserved(k) {
			md.Append(k, v)
		}
	}
	return nil
}

// credentialsError prevents credentials from returning a status that only the callee may give (gRFC
// A54).
func credentialsError(err error, otherwise codes.Code) error {
	s, ok := status.FromError(err)
	if !ok {
		return status.Errorf(otherwise, "transport: per-RPC creds failed due to error: %v", err)
	}
	switch s.Code() { //nolint:exhaustive // the others are allowed
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.FailedPrecondition,
		codes.Aborted, codes.OutOfRange, codes.DataLoss:
		return status.Errorf(codes.Internal, "transport: received per-RPC creds error with illegal status: %v", err)
	}
	return err
}
