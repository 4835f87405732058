package oip_test

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/oip"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/need"
)

// dial returns a connection to a server of gRPC with a handler's service.
func dial(t *testing.T, opts oip.Options) *grpc.ClientConn {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	return dialTo(t, opts, listener, "passthrough:buffer",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
}

// dialLoopback is dial over 127.0.0.1, where a client has a user.
func dialLoopback(t *testing.T, opts oip.Options) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return dialTo(t, opts, listener, listener.Addr().String())
}

func dialTo(t *testing.T, opts oip.Options, listener net.Listener, target string, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	server := grpc.NewServer()
	oip.New(opts).RegisterGRPC(server)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient(target, append(more, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// call calls a method of the service.
func call(ctx context.Context, conn *grpc.ClientConn, method string, request, reply proto.Message) error {
	return conn.Invoke(ctx, "/inference.GRPCInferenceService/"+method, request, reply)
}

func TestGRPCCalls(t *testing.T) {
	conn := dial(t, oip.Options{Models: &echo{}, Version: "9"})
	fp32 := []*inference.ModelMetadataResponse_TensorMetadata{{Name: "x", Datatype: "FP32", Shape: []int64{-1, 2}}}
	for _, c := range []struct {
		method        string
		request, want proto.Message
		code          codes.Code
	}{
		{"ServerLive", &inference.ServerLiveRequest{}, &inference.ServerLiveResponse{Live: true}, 0},
		{"ServerReady", &inference.ServerReadyRequest{}, &inference.ServerReadyResponse{Ready: true}, 0},
		{"ModelReady", &inference.ModelReadyRequest{Name: "echo"}, &inference.ModelReadyResponse{Ready: true}, 0},
		{"ModelReady", &inference.ModelReadyRequest{Name: "other"}, &inference.ModelReadyResponse{}, 0},
		{"ModelReady", &inference.ModelReadyRequest{Name: "none"}, &inference.ModelReadyResponse{}, 0},
		{"ModelMetadata", &inference.ModelMetadataRequest{Name: "echo"}, &inference.ModelMetadataResponse{
			Name: "echo", Versions: []string{"3"}, Platform: "fake", Inputs: fp32, Outputs: fp32,
		}, 0},
		{"ModelMetadata", &inference.ModelMetadataRequest{Name: "none"}, &inference.ModelMetadataResponse{}, codes.NotFound},
		{"ModelConfig", &inference.ModelConfigRequest{Name: "echo"}, &inference.ModelConfigResponse{Config: &inference.ModelConfig{
			Name: "echo", Platform: "fake", Backend: "fake", MaxBatchSize: 32, DynamicBatching: &inference.ModelDynamicBatching{},
			Input:         []*inference.ModelInput{{Name: "x", DataType: inference.DataType_TYPE_FP32, Dims: []int64{2}}},
			Output:        []*inference.ModelOutput{{Name: "x", DataType: inference.DataType_TYPE_FP32, Dims: []int64{2}}},
			InstanceGroup: []*inference.ModelInstanceGroup{{Name: "echo", Kind: inference.ModelInstanceGroup_KIND_CPU, Count: 1}},
		}}, 0},
		{"RepositoryIndex", &inference.RepositoryIndexRequest{Ready: true}, &inference.RepositoryIndexResponse{
			Models: []*inference.RepositoryIndexResponse_ModelIndex{{Name: "echo", Version: "3", State: "READY"}},
		}, 0},
		{"RepositoryModelLoad", &inference.RepositoryModelLoadRequest{ModelName: "echo"}, &inference.RepositoryModelLoadResponse{}, 0},
		{"RepositoryModelLoad", &inference.RepositoryModelLoadRequest{ModelName: "none"}, &inference.RepositoryModelLoadResponse{}, codes.NotFound},
		{"RepositoryModelLoad", &inference.RepositoryModelLoadRequest{
			ModelName: "echo", Parameters: map[string]*inference.ModelRepositoryParameter{"config": {}},
		}, &inference.RepositoryModelLoadResponse{}, codes.InvalidArgument},
		{"RepositoryModelUnload", &inference.RepositoryModelUnloadRequest{ModelName: "echo"}, &inference.RepositoryModelUnloadResponse{}, 0},
		{"SystemSharedMemoryStatus", &inference.SystemSharedMemoryStatusRequest{}, &inference.SystemSharedMemoryStatusResponse{}, codes.InvalidArgument},
	} {
		reply := c.want.ProtoReflect().New().Interface()
		err := call(t.Context(), conn, c.method, c.request, reply)
		if status.Code(err) != c.code || err == nil && !proto.Equal(reply, c.want) {
			t.Errorf("%s(%v): %v, %v", c.method, c.request, err, cmp.Diff(reply, c.want, protocmp.Transform()))
		}
	}
	var stats inference.ModelStatisticsResponse
	if err := call(t.Context(), conn, "ModelStatistics", &inference.ModelStatisticsRequest{}, &stats); err != nil || len(stats.GetModelStats()) != 2 || stats.GetModelStats()[0].GetInferenceStats().GetQueue() == nil {
		t.Errorf("statistics %v, %v", &stats, err)
	}
}

// typedInputs are values of each data type that has typed contents, with their bytes.
func typedInputs() map[model.DataType]struct {
	contents *inference.InferTensorContents
	data     string
} {
	type input = struct {
		contents *inference.InferTensorContents
		data     string
	}
	return map[model.DataType]input{
		model.Bool:   {&inference.InferTensorContents{BoolContents: []bool{true, false}}, "\x01\x00"},
		model.Int8:   {&inference.InferTensorContents{IntContents: []int32{-1, 127}}, "\xff\x7f"},
		model.Int16:  {&inference.InferTensorContents{IntContents: []int32{-2, 258}}, "\xfe\xff\x02\x01"},
		model.Int32:  {&inference.InferTensorContents{IntContents: []int32{-1, 1}}, "\xff\xff\xff\xff\x01\x00\x00\x00"},
		model.Int64:  {&inference.InferTensorContents{Int64Contents: []int64{-1, 1}}, "\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00"},
		model.Uint8:  {&inference.InferTensorContents{UintContents: []uint32{255, 1}}, "\xff\x01"},
		model.Uint16: {&inference.InferTensorContents{UintContents: []uint32{65535, 1}}, "\xff\xff\x01\x00"},
		model.Uint32: {&inference.InferTensorContents{UintContents: []uint32{math.MaxUint32, 1}}, "\xff\xff\xff\xff\x01\x00\x00\x00"},
		model.Uint64: {&inference.InferTensorContents{Uint64Contents: []uint64{1, 2}}, "\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00"},
		model.FP32:   {&inference.InferTensorContents{Fp32Contents: []float32{1, -2}}, "\x00\x00\x80\x3f\x00\x00\x00\xc0"},
		model.FP64:   {&inference.InferTensorContents{Fp64Contents: []float64{1, -2}}, "\x00\x00\x00\x00\x00\x00\xf0\x3f\x00\x00\x00\x00\x00\x00\x00\xc0"},
		model.Bytes:  {&inference.InferTensorContents{BytesContents: [][]byte{[]byte("a\xff"), {}}}, "\x02\x00\x00\x00a\xff\x00\x00\x00\x00"},
	}
}

// Typed contents reach the model as its bytes and are answered as typed ones, raw ones as raw ones.
func TestGRPCDataTypes(t *testing.T) {
	models := &echo{}
	conn := dial(t, oip.Options{Models: models})
	for kind := model.Bool; kind <= model.Bytes; kind++ {
		in, isTyped := typedInputs()[kind]
		if !isTyped {
			in.data = "\x01\x02\x03\x04" // FP16 and BF16
		}
		request := func() *inference.ModelInferRequest {
			return &inference.ModelInferRequest{ModelName: "echo", Id: "7", Inputs: []*inference.ModelInferRequest_InferInputTensor{
				{Name: "x", Datatype: kind.String(), Shape: []int64{2}},
			}}
		}
		typed, raw := request(), request()
		typed.Inputs[0].Contents = in.contents
		raw.RawInputContents = [][]byte{[]byte(in.data)}
		var reply inference.ModelInferResponse
		if err := call(t.Context(), conn, "ModelInfer", raw, &reply); err != nil || string(models.last.Inputs[0].Data) != in.data || len(reply.GetRawOutputContents()) != 1 ||
			string(reply.GetRawOutputContents()[0]) != in.data || reply.GetId() != "7" || reply.GetModelVersion() != "3" {
			t.Errorf("raw %v: %v, %v", kind, &reply, err)
		}
		models.last = nil
		err := call(t.Context(), conn, "ModelInfer", typed, &reply)
		switch {
		case !isTyped:
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("typed %v: %v", kind, err)
			}
		case err != nil || string(models.last.Inputs[0].Data) != in.data || len(reply.GetRawOutputContents()) > 0 || !proto.Equal(reply.GetOutputs()[0].GetContents(), in.contents):
			t.Errorf("typed %v: %v, %v", kind, &reply, err)
		}
	}
}

func TestGRPCRefusesMalformedRequests(t *testing.T) {
	conn := dial(t, oip.Options{Models: &echo{}})
	two := &inference.InferTensorContents{Fp32Contents: []float32{1, 2}}
	x := func(kind string, shape []int64, c *inference.InferTensorContents) []*inference.ModelInferRequest_InferInputTensor {
		return []*inference.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: kind, Shape: shape, Contents: c}}
	}
	for name, q := range map[string]*inference.ModelInferRequest{
		"unknown type":   {Inputs: x("FP8", []int64{2}, two)},
		"too many":       {Inputs: x("FP32", []int64{1}, two)},
		"too few":        {Inputs: x("FP32", []int64{3}, two)},
		"huge shape":     {Inputs: x("FP32", []int64{1 << 40, 1 << 40}, two)},
		"negative shape": {Inputs: x("FP32", []int64{-2}, two)},
		"other contents": {Inputs: x("INT64", []int64{2}, two)},
		"out of range":   {Inputs: x("INT8", []int64{1}, &inference.InferTensorContents{IntContents: []int32{128}})},
		"no data":        {Inputs: x("FP32", []int64{2}, nil)},
		"both":           {Inputs: x("FP32", []int64{2}, two), RawInputContents: [][]byte{make([]byte, 8)}},
		"raw too many":   {Inputs: x("FP32", []int64{2}, nil), RawInputContents: [][]byte{make([]byte, 8), nil}},
		"sequence":       {Parameters: map[string]*inference.InferParameter{"sequence_id": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: -1}}}},
		"no value":       {Parameters: map[string]*inference.InferParameter{"priority": {}}},
		"NaN":            {Parameters: map[string]*inference.InferParameter{"priority": {ParameterChoice: &inference.InferParameter_DoubleParam{DoubleParam: math.NaN()}}}},
	} {
		q.ModelName = "echo"
		if err := call(t.Context(), conn, "ModelInfer", q, &inference.ModelInferResponse{}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGRPCErrorsHaveCode(t *testing.T) {
	for kind, code := range map[outboard.Kind]codes.Code{
		outboard.Exhausted: codes.Unavailable, outboard.Unreachable: codes.Unavailable, outboard.Invalid: codes.InvalidArgument,
		outboard.Denied: codes.PermissionDenied, outboard.NotFound: codes.NotFound, outboard.Other: codes.Internal,
	} {
		conn := dial(t, oip.Options{Models: &echo{err: outboard.Errorf(kind, "", "refused")}})
		if err := call(t.Context(), conn, "ModelInfer", &inference.ModelInferRequest{ModelName: "echo"}, &inference.ModelInferResponse{}); status.Code(err) != code {
			t.Errorf("%v: %v", kind, err)
		}
	}
	for kind, code := range map[outboard.Kind]codes.Code{outboard.Denied: codes.Unauthenticated, outboard.Busy: codes.ResourceExhausted} {
		if err := oip.RefusalStatus(outboard.Errorf(kind, "", "refused")); status.Code(err) != code {
			t.Errorf("not admitted with %v: %v", kind, err)
		}
	}
}

// The requests of a stream are answered in their order, and the error of one is its answer.
func TestGRPCStream(t *testing.T) {
	conn := dial(t, oip.Options{Models: &echo{}})
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/inference.GRPCInferenceService/ModelStreamInfer")
	if err != nil {
		t.Fatal(err)
	}
	names := []string{"echo", "none", "echo", "other"}
	for i, name := range names {
		if err := stream.SendMsg(&inference.ModelInferRequest{ModelName: name, Id: string(rune('a' + i))}); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		var reply inference.ModelStreamInferResponse
		if err := stream.RecvMsg(&reply); err != nil || reply.GetInferResponse().GetId() != string(rune('a'+i)) || (reply.GetErrorMessage() != "") != (name == "none") {
			t.Errorf("%s: %v, %v", name, &reply, err)
		}
	}
	if err := stream.RecvMsg(&inference.ModelStreamInferResponse{}); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v", err)
	}
}

// A client whose key names some models neither uses nor sees the others.
// What streams hold is bounded: a request beyond that is refused, and later ones are answered.
func TestGRPCStreamBytes(t *testing.T) {
	conn := dial(t, oip.Options{Models: &echo{}, StreamBytes: 1 << 10})
	stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/inference.GRPCInferenceService/ModelStreamInfer")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		q := &inference.ModelInferRequest{ModelName: "echo", Id: "small"}
		large := i%2 == 1
		if large {
			q.Id, q.RawInputContents = "large", [][]byte{make([]byte, 2<<10)}
		}
		var reply inference.ModelStreamInferResponse
		if err := errors.Join(stream.SendMsg(q), stream.RecvMsg(&reply)); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(reply.GetErrorMessage(), "streams of requests hold") != large || reply.GetInferResponse().GetId() != q.GetId() {
			t.Errorf("%s: %v", q.GetId(), &reply)
		}
	}
}

func TestGRPCAllow(t *testing.T) {
	models := &echo{}
	conn := dial(t, oip.Options{Models: models, Allow: func(_ context.Context, name string) error {
		if name == "echo" {
			return nil
		}
		return outboard.Errorf(outboard.Denied, "", "the key may not use %s", name)
	}})
	for method, q := range map[string]proto.Message{
		"ModelReady": &inference.ModelReadyRequest{Name: "other"}, "ModelMetadata": &inference.ModelMetadataRequest{Name: "other"},
		"ModelConfig": &inference.ModelConfigRequest{Name: "other"}, "ModelStatistics": &inference.ModelStatisticsRequest{Name: "other"},
		"ModelInfer":          &inference.ModelInferRequest{ModelName: "other"},
		"RepositoryModelLoad": &inference.RepositoryModelLoadRequest{ModelName: "other"}, "RepositoryModelUnload": &inference.RepositoryModelUnloadRequest{ModelName: "other"},
	} {
		if err := call(t.Context(), conn, method, q, &inference.ModelInferResponse{}); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", method, err)
		}
	}
	if models.unloaded != "" {
		t.Errorf("%s was unloaded", models.unloaded)
	}
	var index inference.RepositoryIndexResponse
	if err := call(t.Context(), conn, "RepositoryIndex", &inference.RepositoryIndexRequest{}, &index); err != nil || len(index.GetModels()) != 1 {
		t.Errorf("index %v, %v", &index, err)
	}
}

// Tensors come from and go to memory that the client has registered, which no other client sees.
func TestSharedMemory(t *testing.T) {
	file, err := os.CreateTemp("/dev/shm", "outboard-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file.Name()) })
	if _, err := file.WriteString("....abcdefgh........"); err != nil {
		t.Fatal(err)
	}
	conn := dialLoopback(t, oip.Options{Models: &echo{}, SharedMemory: true, Owner: func(ctx context.Context) string {
		md, _ := metadata.FromIncomingContext(ctx)
		return strings.Join(md.Get("owner"), "")
	}})
	key := filepath.Base(file.Name())
	mine, others := metadata.AppendToOutgoingContext(t.Context(), "owner", "a"), metadata.AppendToOutgoingContext(t.Context(), "owner", "b")
	register := func(q *inference.SystemSharedMemoryRegisterRequest) error {
		return call(mine, conn, "SystemSharedMemoryRegister", q, &inference.SystemSharedMemoryRegisterResponse{})
	}
	for name, q := range map[string]*inference.SystemSharedMemoryRegisterRequest{
		"path":      {Name: "r", Key: "../etc/passwd", ByteSize: 4},
		"parent":    {Name: "r", Key: "..", ByteSize: 4},
		"too large": {Name: "r", Key: key, ByteSize: 21},
		"overflow":  {Name: "r", Key: key, Offset: math.MaxUint64, ByteSize: 2},
		"empty":     {Name: "r", Key: key},
		"missing":   {Name: "r", Key: key + "x", ByteSize: 4},
	} {
		if err := register(q); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := register(&inference.SystemSharedMemoryRegisterRequest{Name: "r", Key: "/" + key, Offset: 4, ByteSize: 16}); err != nil {
		t.Fatal(err)
	}
	use := func(offset, size int64) map[string]*inference.InferParameter {
		number := func(n int64) *inference.InferParameter {
			return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: n}}
		}
		return map[string]*inference.InferParameter{
			"shared_memory_region": {ParameterChoice: &inference.InferParameter_StringParam{StringParam: "r"}},
			"shared_memory_offset": number(offset), "shared_memory_byte_size": number(size),
		}
	}
	infer := func(ctx context.Context, from, to map[string]*inference.InferParameter) (*inference.ModelInferResponse, error) {
		reply := &inference.ModelInferResponse{}
		return reply, call(ctx, conn, "ModelInfer", &inference.ModelInferRequest{
			ModelName: "echo", Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8", Shape: []int64{8}, Parameters: from}},
			Outputs: []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: "x", Parameters: to}},
		}, reply)
	}
	reply, err := infer(mine, use(0, 8), use(8, 8))
	if err != nil || len(reply.GetRawOutputContents()) > 0 || reply.GetOutputs()[0].GetParameters()["shared_memory_offset"].GetInt64Param() != 8 {
		t.Fatalf("%v, %v", reply, err)
	}
	if text, err := os.ReadFile(file.Name()); err != nil || string(text) != "....abcdefghabcdefgh" {
		t.Errorf("the memory is %q, %v", text, err)
	}
	for name, f := range map[string]func() error{
		"another client":  func() error { _, err := infer(others, use(0, 8), nil); return err },
		"beyond":          func() error { _, err := infer(mine, use(9, 8), nil); return err },
		"negative":        func() error { _, err := infer(mine, use(-1, 8), nil); return err },
		"output too long": func() error { _, err := infer(mine, use(0, 8), use(12, 8)); return err },
		"byte_size is 7":  func() error { _, err := infer(mine, use(0, 8), use(8, 7)); return err },
	} {
		if err := f(); status.Code(err) != codes.InvalidArgument || strings.Contains(name, "byte_size") && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	var list inference.SystemSharedMemoryStatusResponse
	if err := call(others, conn, "SystemSharedMemoryUnregister", &inference.SystemSharedMemoryUnregisterRequest{}, &inference.SystemSharedMemoryUnregisterResponse{}); err != nil {
		t.Error(err)
	}
	if err := call(mine, conn, "SystemSharedMemoryStatus", &inference.SystemSharedMemoryStatusRequest{}, &list); err != nil || list.GetRegions()["r"].GetByteSize() != 16 {
		t.Errorf("after another client has unregistered: %v, %v", &list, err)
	}
	if err := os.Truncate(file.Name(), 8); err != nil {
		t.Fatal(err)
	}
	if _, err := infer(mine, use(0, 8), nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("truncated: %v", err)
	}
}

// Memory that was never written takes none, however long it is; its copy in the node would. The copies
// are bounded like a body, and reserved for the client while the request runs.
func TestSharedMemoryIsReserved(t *testing.T) {
	file, err := os.CreateTemp("/dev/shm", "outboard-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file.Name()) })
	const size, limit = 1 << 40, 1 << 20
	if err := file.Truncate(size); err != nil {
		t.Fatal(err)
	}
	held, most := int64(0), int64(0)
	conn := dialLoopback(t, oip.Options{Models: &echo{}, SharedMemory: true, MaxBody: limit, Reserve: func(_ context.Context, n int64) (func(), error) {
		if n > limit/2 {
			return nil, outboard.Errorf(outboard.Busy, "", "too much")
		}
		held += n
		most = max(most, held)
		return func() { held -= n }, nil
	}})
	q := &inference.SystemSharedMemoryRegisterRequest{Name: "r", Key: filepath.Base(file.Name()), ByteSize: size}
	if err := call(t.Context(), conn, "SystemSharedMemoryRegister", q, &inference.SystemSharedMemoryRegisterResponse{}); err != nil {
		t.Fatal(err)
	}
	infer := func(sizes ...int64) codes.Code {
		q := &inference.ModelInferRequest{ModelName: "echo"}
		for _, n := range sizes {
			q.Inputs = append(q.Inputs, &inference.ModelInferRequest_InferInputTensor{
				Name: "x", Datatype: "UINT8", Shape: []int64{n}, Parameters: map[string]*inference.InferParameter{
					"shared_memory_region":    {ParameterChoice: &inference.InferParameter_StringParam{StringParam: "r"}},
					"shared_memory_byte_size": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: n}},
				},
			})
		}
		return status.Code(call(t.Context(), conn, "ModelInfer", q, &inference.ModelInferResponse{}))
	}
	for _, c := range []struct {
		sizes []int64
		want  codes.Code
	}{
		{[]int64{limit / 2}, codes.OK},
		{[]int64{limit/2 + 1}, codes.Unavailable},
		{[]int64{size}, codes.InvalidArgument},
		{[]int64{limit / 2, limit / 2, 1}, codes.InvalidArgument},
	} {
		if got := infer(c.sizes...); got != c.want || held != 0 {
			t.Errorf("tensors of %d bytes: %v, want %v; %d are held afterwards", c.sizes, got, c.want, held)
		}
	}
	if most != limit {
		t.Errorf("%d bytes were reserved, want %d", most, limit)
	}
}

// Requests that would take much more memory than their bytes are refused before they are decoded.
func TestDecodedRequestsAreBounded(t *testing.T) {
	conn := dial(t, oip.Options{Models: &echo{}})
	q := &inference.ModelInferRequest{ModelName: "echo", RawInputContents: make([][]byte, 1<<20)}
	if err := call(t.Context(), conn, "ModelInfer", q, &inference.ModelInferResponse{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("over gRPC: %v", err)
	}
	h := oip.New(oip.Options{Models: &echo{}})
	for name, body := range map[string]string{
		"inputs":     `{"inputs":[` + strings.Repeat(`0,`, 1<<20) + `0]}`,
		"outputs":    `{"outputs":[` + strings.Repeat(`{},`, 1<<20) + `{}]}`,
		"shape":      `{"inputs":[{"name":"x","datatype":"INT8","shape":[` + strings.Repeat(`1,`, 1<<20) + `1]}]}`,
		"parameters": `{"inputs":[{"name":"x","parameters":{` + strings.Repeat(`"a":1,`, 1<<20) + `"b":1}}]}`,
	} {
		w := send(t, h, "POST", "/v2/models/echo/infer", body)
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "too many members") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// TestSharedMemoryOfOthers: a client reaches through the node, which may open everything, no memory
// of another user of the machine; and a client of which no user is known reaches none at all.
func TestSharedMemoryOfOthers(t *testing.T) {
	need.Root(t)
	file, err := os.CreateTemp("/dev/shm", "outboard-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(file.Name()) })
	if err := errors.Join(file.Truncate(16), file.Chown(65534, -1)); err != nil {
		t.Fatal(err)
	}
	opts := oip.Options{Models: &echo{}, SharedMemory: true}
	server := httptest.NewServer(oip.New(opts))
	defer server.Close()
	overREST := func() codes.Code {
		body := strings.NewReader(`{"key":"/` + filepath.Base(file.Name()) + `","offset":0,"byte_size":16}`)
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/v2/systemsharedmemory/region/rest/register", body)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return map[int]codes.Code{http.StatusOK: codes.OK, http.StatusForbidden: codes.PermissionDenied}[answer.StatusCode]
	}
	over := func(conn *grpc.ClientConn) func() codes.Code {
		return func() codes.Code {
			q := &inference.SystemSharedMemoryRegisterRequest{Name: "grpc", Key: "/" + filepath.Base(file.Name()), ByteSize: 16}
			return status.Code(call(t.Context(), conn, "SystemSharedMemoryRegister", q, &inference.SystemSharedMemoryRegisterResponse{}))
		}
	}
	loopback, unknown := over(dialLoopback(t, opts)), over(dial(t, opts))
	for _, c := range []struct {
		mode      os.FileMode
		here, far codes.Code
	}{{0o600, codes.PermissionDenied, codes.PermissionDenied}, {0o604, codes.PermissionDenied, codes.PermissionDenied}, {0o666, codes.OK, codes.PermissionDenied}} {
		if err := file.Chmod(c.mode); err != nil {
			t.Fatal(err)
		}
		if rest, grpc, far := overREST(), loopback(), unknown(); rest != c.here || grpc != c.here || far != c.far {
			t.Errorf("mode %v: %v, %v, and %v for a client without a user; want %v and %v", c.mode, rest, grpc, far, c.here, c.far)
		}
	}
}

// Whatever comes, the answer is a response or a status that blames the request.
func FuzzGRPCInfer(f *testing.F) {
	for kind, in := range typedInputs() {
		text, err := proto.Marshal(&inference.ModelInferRequest{Inputs: []*inference.ModelInferRequest_InferInputTensor{
			{Name: "x", Datatype: kind.String(), Shape: []int64{2}, Contents: in.contents},
		}})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	handler := oip.New(oip.Options{Models: &echo{}})
	var infer grpc.MethodHandler
	handler.RegisterGRPC(registrar(func(d *grpc.ServiceDesc) {
		for _, m := range d.Methods {
			if m.MethodName == "ModelInfer" {
				infer = m.Handler
			}
		}
	}))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := infer(nil, t.Context(), func(to any) error {
			named := append(slices.Clip(text), "\x0a\x04echo"...)  // model_name
			if proto.Unmarshal(named, to.(proto.Message)) != nil { //nolint:forcetypeassert // ModelInfer's
				return status.Error(codes.InvalidArgument, "no message")
			}
			return nil
		}, nil)
		if code := status.Code(err); code != codes.OK && code != codes.InvalidArgument {
			t.Fatal(err)
		}
	})
}

// registrar is a function that gets the description of a service.
type registrar func(*grpc.ServiceDesc)

func (r registrar) RegisterService(d *grpc.ServiceDesc, _ any) { r(d) }
