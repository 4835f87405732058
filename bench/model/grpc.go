package main

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// An oipCaller sends one request repeatedly over gRPC.
type oipCaller struct {
	conn    *grpc.ClientConn
	request *inference.ModelInferRequest
}

// dialOIP connects to a node's gRPC server. An error means that the node does not serve the
// protocol.
func dialOIP(ctx context.Context, addr, name string, input model.Tensor) (*oipCaller, error) {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	c := &oipCaller{conn: conn, request: &inference.ModelInferRequest{
		ModelName:        name,
		Inputs:           []*inference.ModelInferRequest_InferInputTensor{{Name: input.Name, Datatype: input.Type.String(), Shape: input.Shape}},
		RawInputContents: [][]byte{input.Data},
	}}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := conn.Invoke(ctx, "/inference.GRPCInferenceService/ServerLive", &inference.ServerLiveRequest{}, &inference.ServerLiveResponse{}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("the node serves no gRPC of the Open Inference Protocol: %w", err)
	}
	return c, nil
}

func (c *oipCaller) infer(ctx context.Context) error {
	return c.conn.Invoke(ctx, "/inference.GRPCInferenceService/ModelInfer", c.request, &inference.ModelInferResponse{})
}

// Close ends the connection.
func (c *oipCaller) Close() error { return c.conn.Close() }
