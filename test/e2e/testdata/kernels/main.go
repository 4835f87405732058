// Command kernels is a function for tests of devices: the first word of a request says
// what, and the environment which import it uses.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
)

const source = `
kernel void triple(global uint *a, uint plus) { a[get_global_id(0)] = 3 * a[get_global_id(0)] + plus; }
kernel void turn(global volatile uint *a, uint rounds) {
	for (uint i = 0; i < rounds; i++)
		for (uint j = 0; j < 1000000; j++) a[0] += j;
}
`

const prints = `kernel void say() { printf("item %d says hello\n", (int)get_global_id(0)); }`

func init() { guest.Handle(handle) }

func main() {}

func handle(request []byte) ([]byte, error) {
	verb, rest, _ := strings.Cut(string(request), " ")
	gpu, err := guest.ImportDevice(os.Getenv("DEVICE"))
	if err != nil {
		return nil, err
	}
	n, _ := strconv.Atoi(rest)
	switch verb {
	case "info":
		return gpu.Info()
	case "triple":
		return triple(gpu, n)
	case "turn":
		return turn(gpu, n)
	case "room":
		gpu.Buffer(n)
		return []byte("there is"), gpu.Wait()
	case "wrong":
		gpu.Program("kernel void wrong() { this is no C }")
		return nil, gpu.Wait()
	case "print":
		gpu.Program(prints).Launch("say", guest.Items(n))
		return []byte("printed"), gpu.Wait()
	case "arena":
		return arena(gpu, n)
	case "twice": // gives the first lease back before the second
		if _, err := triple(gpu, n); err != nil {
			return nil, err
		}
		gpu.Close()
		return triple(gpu, n)
	}
	return nil, errors.New("no verb " + verb)
}

// triple checks all of the result and answers with how much that is.
func triple(gpu *guest.Device, n int) ([]byte, error) {
	data := make([]byte, 0, 4*n)
	for i := range n {
		data = binary.LittleEndian.AppendUint32(data, uint32(i))
	}
	numbers := gpu.BufferOf(data)
	gpu.Program(source).Launch("triple", guest.Items(n), numbers, uint32(5))
	got, err := numbers.Read(0, len(data))
	if err != nil {
		return nil, err
	}
	for i := range n {
		if number := binary.LittleEndian.Uint32(got[4*i:]); number != 3*uint32(i)+5 {
			return nil, fmt.Errorf("number %d is %d", i, number)
		}
	}
	return fmt.Append(nil, n, " right"), nil
}

// turn keeps the device busy.
func turn(gpu *guest.Device, rounds int) ([]byte, error) {
	b := gpu.Buffer(4)
	gpu.Program(source).Launch("turn", guest.Items(1), b, uint32(rounds))
	_, err := b.Read(0, 4)
	return []byte("turned"), err
}

// arena has the device read from the arena, and write there.
func arena(gpu *guest.Device, n int) ([]byte, error) {
	data := guest.Alloc(4 * n)
	for i := range n {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(i))
	}
	numbers := gpu.BufferOf(data)
	gpu.Program(source).Launch("triple", guest.Items(n), numbers, uint32(1))
	out := guest.Alloc(4 * n)
	if err := numbers.ReadInto(0, out); err != nil {
		return nil, err
	}
	last := binary.LittleEndian.Uint32(out[4*(n-1):])
	if bytes.Equal(out, data) || last != 3*uint32(n-1)+1 {
		return nil, fmt.Errorf("the last is %d", last)
	}
	return out, nil
}
