package oip

import (
	"context"
	"time"

	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/model/serve"
)

func (s *grpcService) modelConfig(ctx context.Context, q *inference.ModelConfigRequest) (*inference.ModelConfigResponse, error) {
	if err := s.opts.Allow(ctx, q.GetName()); err != nil {
		return nil, err
	}
	d, err := s.opts.Models.Describe(ctx, q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	return &inference.ModelConfigResponse{Config: configMessage(d)}, nil
}

// configMessage returns a model's configuration as Triton's ModelConfig.
func configMessage(d *serve.Description) *inference.ModelConfig {
	c := &d.Version.Config
	config := &inference.ModelConfig{
		Name: d.Version.Name, Platform: d.Info.Platform, Backend: d.Version.Engine, MaxBatchSize: int32(maxBatch(d)),
		InstanceGroup: []*inference.ModelInstanceGroup{{
			Name: d.Version.Name, Kind: inference.ModelInstanceGroup_KIND_CPU, Count: int32(max(c.Instances, 1)),
		}},
	}
	for i := range d.Info.Inputs {
		in := &d.Info.Inputs[i]
		config.Input = append(config.Input, &inference.ModelInput{Name: in.Name, DataType: dataTypeMessage(in.Type), Dims: dimensions(d, in)})
	}
	for i := range d.Info.Outputs {
		out := &d.Info.Outputs[i]
		config.Output = append(config.Output, &inference.ModelOutput{Name: out.Name, DataType: dataTypeMessage(out.Type), Dims: dimensions(d, out)})
	}
	if config.GetMaxBatchSize() > 1 {
		config.DynamicBatching = &inference.ModelDynamicBatching{MaxQueueDelayMicroseconds: uint64(time.Duration(c.Batching.Delay).Microseconds())}
		for _, n := range c.Batching.Preferred {
			config.DynamicBatching.PreferredBatchSize = append(config.DynamicBatching.PreferredBatchSize, int32(n))
		}
	}
	return config
}

func dataTypeMessage(t model.DataType) inference.DataType {
	return inference.DataType(inference.DataType_value["TYPE_"+tritonType(t)])
}

func (s *grpcService) modelStatistics(ctx context.Context, q *inference.ModelStatisticsRequest) (*inference.ModelStatisticsResponse, error) {
	if q.GetName() != "" {
		if err := s.opts.Allow(ctx, q.GetName()); err != nil {
			return nil, err
		}
	}
	list, err := s.statistics(ctx, q.GetName(), q.GetVersion())
	if err != nil {
		return nil, err
	}
	reply := &inference.ModelStatisticsResponse{}
	for i := range list {
		reply.ModelStats = append(reply.ModelStats, list[i].message())
	}
	return reply, nil
}

func (d duration) message() *inference.StatisticDuration {
	return &inference.StatisticDuration{Count: d.Count, Ns: d.NS}
}

func (m *modelStats) message() *inference.ModelStatistics {
	at := func(name string) *inference.StatisticDuration { return m.Stats[name].message() }
	list := &inference.ModelStatistics{
		Name: m.Name, Version: m.Version, LastInference: uint64(m.Last), InferenceCount: m.Inferences, ExecutionCount: m.Executions,
		InferenceStats: &inference.InferStatistics{
			Success: at("success"), Fail: at("fail"), Queue: at("queue"), ComputeInput: at("compute_input"), ComputeInfer: at("compute_infer"),
			ComputeOutput: at("compute_output"), CacheHit: at("cache_hit"), CacheMiss: at("cache_miss"),
		},
	}
	for _, b := range m.Batches {
		list.BatchStats = append(list.BatchStats, &inference.InferBatchStatistics{
			BatchSize: uint64(b.Size), ComputeInput: b.Input.message(), ComputeInfer: b.Compute.message(), ComputeOutput: b.Output.message(),
		})
	}
	return list
}

func (s *grpcService) repositoryIndex(ctx context.Context, q *inference.RepositoryIndexRequest) (*inference.RepositoryIndexResponse, error) {
	reply := &inference.RepositoryIndexResponse{}
	for _, e := range s.indexEntries(ctx, q.GetReady()) {
		reply.Models = append(reply.Models, &inference.RepositoryIndexResponse_ModelIndex{Name: e.Name, Version: e.Version, State: e.State, Reason: e.Reason})
	}
	return reply, nil
}

// checkLoad refuses parameters of Triton's repository requests that this repository lacks, and
// clients that may not load the model.
func (s *grpcService) checkLoad(ctx context.Context, name string, parameters map[string]*inference.ModelRepositoryParameter) error {
	if err := checkLoadParameters(parameters); err != nil {
		return err
	}
	if err := s.opts.Administer(ctx); err != nil {
		return err
	}
	return s.opts.Allow(ctx, name)
}

func (s *grpcService) modelLoad(ctx context.Context, q *inference.RepositoryModelLoadRequest) (*inference.RepositoryModelLoadResponse, error) {
	if err := s.checkLoad(ctx, q.GetModelName(), q.GetParameters()); err != nil {
		return nil, err
	}
	return &inference.RepositoryModelLoadResponse{}, s.opts.Models.Load(ctx, q.GetModelName(), "")
}

func (s *grpcService) modelUnload(ctx context.Context, q *inference.RepositoryModelUnloadRequest) (*inference.RepositoryModelUnloadResponse, error) {
	if err := s.checkLoad(ctx, q.GetModelName(), q.GetParameters()); err != nil {
		return nil, err
	}
	return &inference.RepositoryModelUnloadResponse{}, s.opts.Models.Unload(q.GetModelName())
}

func (s *grpcService) sharedMemoryStatus(ctx context.Context, q *inference.SystemSharedMemoryStatusRequest) (*inference.SystemSharedMemoryStatusResponse, error) {
	list, err := s.regions.list(ctx, q.GetName())
	if err != nil {
		return nil, err
	}
	reply := &inference.SystemSharedMemoryStatusResponse{Regions: map[string]*inference.SystemSharedMemoryStatusResponse_RegionStatus{}}
	for _, x := range list {
		reply.Regions[x.Name] = &inference.SystemSharedMemoryStatusResponse_RegionStatus{Name: x.Name, Key: x.Key, Offset: x.Offset, ByteSize: x.Size}
	}
	return reply, nil
}

func (s *grpcService) sharedMemoryRegister(ctx context.Context, q *inference.SystemSharedMemoryRegisterRequest) (*inference.SystemSharedMemoryRegisterResponse, error) {
	x := region{Name: q.GetName(), Key: q.GetKey(), Offset: q.GetOffset(), Size: q.GetByteSize()}
	return &inference.SystemSharedMemoryRegisterResponse{}, s.regions.register(ctx, x)
}

func (s *grpcService) sharedMemoryUnregister(ctx context.Context, q *inference.SystemSharedMemoryUnregisterRequest) (*inference.SystemSharedMemoryUnregisterResponse, error) {
	return &inference.SystemSharedMemoryUnregisterResponse{}, s.regions.unregister(ctx, q.GetName())
}
