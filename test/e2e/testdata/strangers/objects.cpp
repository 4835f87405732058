// What users of opencl.hpp do: exceptions, functors, iterators, threads, and
// objects in static storage that are released at exit.
#define CL_HPP_ENABLE_EXCEPTIONS
#define CL_HPP_TARGET_OPENCL_VERSION 300
#define CL_HPP_MINIMUM_OPENCL_VERSION 200
#include <CL/opencl.hpp>

#include <atomic>
#include <cstdio>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

static constexpr int count = 4096;
static constexpr size_t bytes = count * sizeof(int);

static cl::Context context;
static cl::Device device;
static cl::CommandQueue queue;
static cl::Program program;
static cl::Buffer kept;

// Asks for its event's state when the program is already leaving.
static struct Last {
	cl::Kernel kernel;
	cl::Event event;
	~Last() { std::printf("at exit: %d\n", event() ? event.getInfo<CL_EVENT_COMMAND_EXECUTION_STATUS>() : 99); }
} last;

static const char *source = R"(
kernel void add(global const int *a, global const int *b, global int *c, int k, local int *t) {
	int i = get_global_id(0);
	t[get_local_id(0)] = k;
	barrier(CLK_LOCAL_MEM_FENCE);
	c[i] = a[i] + b[i] * t[get_local_id(0)];
})";

static void start() {
	std::vector<cl::Platform> platforms;
	cl::Platform::get(&platforms);
	std::vector<cl::Device> devices;
	platforms.at(0).getDevices(CL_DEVICE_TYPE_ALL, &devices);
	std::printf("%zu platforms, %zu devices\n", platforms.size(), devices.size());
	device = devices.at(0);
	context = cl::Context(device);
	queue = cl::CommandQueue(context, device);
	program = cl::Program(context, source);
	program.build("-cl-kernel-arg-info");
}

static cl::Buffer functor(cl::Buffer &a, cl::Buffer &b) {
	cl::Buffer c(context, CL_MEM_READ_WRITE, bytes);
	cl::KernelFunctor<cl::Buffer, cl::Buffer, cl::Buffer, int, cl::LocalSpaceArg> add(program, "add");
	last.event = add(cl::EnqueueArgs(queue, count, 64), a, b, c, 7, cl::Local(64 * sizeof(int)));
	std::vector<int> got(count);
	cl::copy(queue, c, got.begin(), got.end());
	int wrong = 0;
	for (int i = 0; i < count; i++)
		wrong += got[i] != i + 21;
	std::printf("functor: %d wrong\n", wrong);
	return c;
}

static void events(cl::Buffer &c) {
	std::atomic<int> called{0};
	cl::UserEvent gate(context);
	std::vector<cl::Event> waits{gate};
	cl::Event done;
	queue.enqueueFillBuffer(c, 5, 0, bytes, &waits, &done);
	done.setCallback(CL_COMPLETE, [](cl_event, cl_int, void *p) { ++*static_cast<std::atomic<int> *>(p); }, &called);
	gate.setStatus(CL_COMPLETE);
	done.wait();
	while (!called)
		std::this_thread::yield();
	int *mapped = static_cast<int *>(queue.enqueueMapBuffer(c, CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, bytes));
	std::printf("mapped: %d\n", std::accumulate(mapped, mapped + count, 0));
	mapped[1] = 99;
	queue.enqueueUnmapMemObject(c, mapped);
	int got[2];
	queue.enqueueReadBuffer(c, CL_TRUE, 0, sizeof got, got);
	std::printf("unmapped: %d %d\n", got[0], got[1]);
}

static void error(const std::function<void()> &call) {
	try {
		call();
		std::printf("no error\n");
	} catch (const cl::BuildError &e) {
		std::printf("%s: %d, log names it: %d\n", e.what(), e.err(), e.getBuildLog().at(0).second.find("nothing_like_it") != std::string::npos);
	} catch (const cl::Error &e) {
		std::printf("%s: %d\n", e.what(), e.err());
	}
}

static void errors() {
	error([] { cl::Program(context, "kernel void f() { nothing_like_it; }").build(); });
	error([] { cl::Kernel(program, "subtract"); });
	error([] { cl::Buffer(context, CL_MEM_READ_WRITE, 0); });
	error([] { queue.enqueueNDRangeKernel(cl::Kernel(program, "add"), cl::NullRange, 64); });
	cl::Kernel add(program, "add");
	std::printf("%s(%s ...) of %u\n", add.getInfo<CL_KERNEL_FUNCTION_NAME>().c_str(), add.getArgInfo<CL_KERNEL_ARG_TYPE_NAME>(0).c_str(),
		add.getInfo<CL_KERNEL_NUM_ARGS>());
}

static int one(cl::Buffer &a, cl::Buffer &b, int k) {
	cl::CommandQueue mine(context, device);
	cl::Buffer c(context, CL_MEM_READ_WRITE, bytes);
	cl::Kernel add(program, "add");
	add.setArg(0, a);
	add.setArg(1, b);
	add.setArg(2, c);
	add.setArg(3, k);
	add.setArg(4, cl::Local(64 * sizeof(int)));
	std::vector<int> got(count);
	int wrong = 0;
	for (int round = 0; round < 20; round++) {
		mine.enqueueNDRangeKernel(add, cl::NullRange, count, 64);
		mine.enqueueReadBuffer(c, round % 2, 0, bytes, got.data());
		mine.finish();
		for (int i = 0; i < count; i++)
			wrong += got[i] != i + 3 * k;
	}
	return wrong;
}

static void threads(cl::Buffer &a, cl::Buffer &b) {
	std::atomic<int> wrong{0};
	std::vector<std::thread> all;
	for (int k = 0; k < 32; k++)
		all.emplace_back([&, k] { wrong += one(a, b, k); });
	for (auto &thread : all)
		thread.join();
	std::printf("threads: %d wrong\n", wrong.load());
}

int main() {
	start();
	std::vector<int> first(count), second(count, 3);
	std::iota(first.begin(), first.end(), 0);
	cl::Buffer a(context, first.begin(), first.end(), true), b(context, second.begin(), second.end(), true, true);
	kept = functor(a, b);
	last.kernel = cl::Kernel(program, "add");
	events(kept);
	errors();
	threads(a, b);
	auto binaries = program.getInfo<CL_PROGRAM_BINARIES>();
	cl::Program again(context, {device}, binaries);
	again.build();
	std::printf("from binaries: %s\n", again.getInfo<CL_PROGRAM_KERNEL_NAMES>().c_str());
	static cl::Buffer until_exit(context, CL_MEM_READ_WRITE, 64);
	until_exit.setDestructorCallback([](cl_mem, void *) { std::printf("released at exit\n"); }, nullptr);
}
