package calibrate

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/outboard-run/outboard/internal/accel/driver"
)

// speedSource has the kernels whose rates are a device's speed.
const speedSource = `
kernel void arithmetic(global float4 *out, int rounds) {
	float4 x = (float4)(get_global_id(0)), y = x + 1.0f;
	for (int i = 0; i < rounds; i++) { x = mad(x, y, 0.5f); y = mad(y, x, 0.25f); }
	out[get_global_id(0)] = x + y;
}
kernel void memory(global float4 *out, int distance) {
	int i = get_global_id(0);
	out[i] = out[i + distance];
}`

const (
	deviceName = 0x102B
	// speedItems is the number of work items of a kernel; each has a float4 of 16 bytes in either
	// half of speedBytes.
	speedItems = 2 << 20
	speedBytes = 2 * 16 * speedItems
	// speedTime is the least duration of a measurement: a wake-up is short beside it.
	speedTime = 20 * time.Millisecond
	// arithmeticItems is the number of work items of the other kernel, roundOperations the
	// operations of each in a round: two multiply-adds of four numbers.
	arithmeticItems = 64 << 10
	roundOperations = 2 * 4 * 2
	maxSpeedRounds  = 1 << 16
)

// speed measures the device's speed, as the last measurement. If it fails the speed is zero, and
// the other measurements stand.
func (p *program) speed() Speed {
	if p.err != nil {
		return Speed{}
	}
	defer func() { p.err = nil }()
	s := Speed{Name: p.text(getDeviceInfo, p.device, deviceName)}
	buffer := p.create(createBuffer, p.context, 0, speedBytes, 0)
	built := p.buildFrom(speedSource)
	s.Arithmetic = p.rate(p.launcher(built, "arithmetic", buffer, arithmeticItems), arithmeticItems*roundOperations, true)
	copies := p.rate(p.launcher(built, "memory", buffer, speedItems), speedBytes, false)
	if p.err != nil {
		return Speed{Name: s.Name}
	}
	s.Memory = copies
	return s
}

// buildFrom returns a program built from source.
func (p *program) buildFrom(source string) uintptr {
	text := p.memory(len(source) + 1)
	copy(text, source)
	texts := p.memory(8)
	binary.LittleEndian.PutUint64(texts, uint64(driver.Address(text)))
	built := p.create(createProgram, p.context, 1, driver.Address(texts), 0)
	p.call(buildProgram, built, 0, 0, 0, 0, 0)
	return built
}

// launcher returns a function that launches a kernel with a value for its second argument.
func (p *program) launcher(built uintptr, name string, buffer uintptr, items uint64) func(value uint32) {
	text := p.memory(len(name) + 1)
	copy(text, name)
	kernel := p.create(createKernel, built, driver.Address(text))
	argument, global := p.memory(8), p.memory(8)
	binary.LittleEndian.PutUint64(argument, uint64(buffer))
	p.call(setArgument, kernel, 0, 8, driver.Address(argument))
	binary.LittleEndian.PutUint64(global, items)
	value := p.memory(8)
	return func(v uint32) {
		binary.LittleEndian.PutUint32(value, v)
		p.call(setArgument, kernel, 1, 4, driver.Address(value))
		p.call(launchKernel, p.queue, kernel, 1, 0, driver.Address(global), 0, 0, 0, 0)
	}
}

// rate returns how much of its work a kernel does in a second. It doubles the repetitions of the
// kernel's loop, or of its launch, until they take long enough, and then uses the best of a few
// runs: other users of the device only make a run longer.
func (p *program) rate(launch func(uint32), work float64, loops bool) float64 {
	const runs = 5
	run := func(rounds uint32) time.Duration {
		value, launches := uint32(speedItems), rounds
		if loops {
			value, launches = rounds, 1
		}
		p.call(finish, p.queue)
		began := time.Now()
		for range launches {
			launch(value)
		}
		p.call(finish, p.queue)
		return time.Since(began)
	}
	run(1) // compiles the kernel
	rounds := uint32(1)
	least := run(rounds)
	for p.err == nil && least < speedTime && rounds < maxSpeedRounds {
		rounds *= 2
		least = run(rounds)
	}
	for range runs - 1 {
		least = min(least, run(rounds))
	}
	return work * float64(rounds) / max(least, 1).Seconds()
}

// text returns the answer to a query whose answer is text.
func (p *program) text(fn int, object uintptr, parameter uintptr) string {
	const most = 256
	b := p.memory(most)
	p.call(fn, object, parameter, most, driver.Address(b), 0)
	text, _, _ := strings.Cut(string(b), "\x00")
	return text
}
