package fabric

import (
	"reflect"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// grpcPackage is the import path of the package whose call options must not be ignored.
const grpcPackage = "google.golang.org/grpc"

// priorityCallOption orders a call among those that wait for the same connection.
type priorityCallOption struct {
	grpc.EmptyCallOption
	Priority call.Priority
}

// WithPriority sets the priority of a call.
func WithPriority(p call.Priority) grpc.CallOption { return priorityCallOption{Priority: p} }

// callInfo holds the settings that the options of one call make for its beginning.
type callInfo struct {
	wait       bool
	compressor string
	subtype    string
	codec      encoding.CodecV2
	creds      credentials.PerRPCCredentials
	priority   call.Priority
	maxReceive int
	maxSend    int
	loan       *Loan
}

func (i *callInfo) applyAll(opts []grpc.CallOption) error {
	for _, o := range opts {
		if err := i.apply(o); err != nil {
			return err
		}
	}
	return nil
}

func (i *callInfo) apply(o grpc.CallOption) error {
	switch o := o.(type) {
	case grpc.HeaderCallOption, grpc.TrailerCallOption, grpc.PeerCallOption, grpc.OnFinishCallOption:
		// These options take effect at the call's end: see report.
	case grpc.EmptyCallOption, grpc.StaticMethodCallOption, grpc.MaxRetryRPCBufferSizeCallOption:
		// No messages are kept for retries here, and no metric depends on the method's kind.
	case grpc.FailFastCallOption:
		i.wait = !o.FailFast
	case grpc.MaxRecvMsgSizeCallOption:
		i.maxReceive = o.MaxRecvMsgSize
	case grpc.MaxSendMsgSizeCallOption:
		i.maxSend = o.MaxSendMsgSize
	case grpc.PerRPCCredsCallOption:
		i.creds = o.Creds
	case grpc.CompressorCallOption:
		i.compressor = o.CompressorType
	case priorityCallOption:
		i.priority = o.Priority
	case borrowCallOption:
		i.loan = o.Loan
	default:
		return i.applyCodec(o)
	}
	return nil
}

func (i *callInfo) applyCodec(o grpc.CallOption) error {
	switch o := o.(type) {
	case grpc.ContentSubtypeCallOption:
		i.subtype = o.ContentSubtype
	case grpc.ForceCodecCallOption:
		i.codec = codecV1{o.Codec}
	case grpc.ForceCodecV2CallOption:
		i.codec = o.CodecV2
	case grpc.CustomCodecCallOption:
		i.codec = codecV1{codecV0{o.Codec}}
	default:
		return i.applyForeign(o)
	}
	return nil
}

// applyForeign applies an option that another package made by embedding one of grpc-go's: as in
// grpc-go, the embedded option counts. An unknown option of grpc-go itself is refused.
func (i *callInfo) applyForeign(o grpc.CallOption) error {
	inner := embedded(o)
	if inner == nil {
		return status.Errorf(codes.Unimplemented, "fabric: call option %T can't be honoured here", o)
	}
	return i.apply(inner)
}

func embedded(o grpc.CallOption) grpc.CallOption {
	v := reflect.Indirect(reflect.ValueOf(o))
	if v.Kind() != reflect.Struct || v.Type().PkgPath() == grpcPackage {
		return nil
	}
	for n := range v.NumField() {
		f := v.Type().Field(n)
		if !f.Anonymous || !f.IsExported() {
			continue
		}
		if inner, ok := reflect.TypeAssert[grpc.CallOption](v.Field(n)); ok {
			return inner
		}
	}
	return nil
}

// newCodecState returns the state by which the call's messages are encoded.
func (i *callInfo) newCodecState(values bool) (codecState, error) {
	f := codecState{codec: i.codec, encoding: i.compressor, maxReceive: i.maxReceive, maxSend: i.maxSend}
	if err := i.chooseCodec(&f); err != nil {
		return codecState{}, err
	}
	if i.compressor != "" && i.compressor != encoding.Identity {
		f.compressor = encoding.GetCompressor(i.compressor)
		if f.compressor == nil {
			return codecState{}, status.Errorf(codes.Internal, "grpc: Compressor is not installed for requested grpc-encoding %q", i.compressor)
		}
	}
	f.proto = isProto(f.codec)
	f.passValues = values && f.proto
	return f, nil
}

func (i *callInfo) chooseCodec(f *codecState) error {
	if f.codec != nil {
		if i.subtype == "" {
			i.subtype = strings.ToLower(f.codec.Name())
		}
		return nil
	}
	if f.codec = codecFor(i.subtype); f.codec == nil {
		return status.Errorf(codes.Internal, "no codec registered for content-subtype %s", i.subtype)
	}
	return nil
}

// result holds the values that the options of one call report at its end.
type result struct {
	header, trailer metadata.MD
	peer            *peer.Peer
}

// report stores the result where the options point to.
func (r *result) report(opts []grpc.CallOption) {
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = r.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = r.trailer
		case grpc.PeerCallOption:
			if r.peer != nil {
				*o.PeerAddr = *r.peer
			}
		}
	}
}

// finished calls the OnFinish options of a call that has ended.
func finished(opts []grpc.CallOption, err error) {
	for _, o := range opts {
		if f, ok := o.(grpc.OnFinishCallOption); ok {
			f.OnFinish(err)
		}
	}
}
