package policy_test

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outboard-run/outboard/fabric/policy"
)

// A repository's own tests can check its policies before anybody applies them.
func ExampleCheck() {
	text := `policies:
- name: large-orders
  services: [shop.Orders]
  when: tenent == "guest"
  rate: {rate: 10/s}
`
	err := policy.Check("shop.yaml", []byte(text), policy.Options{Descriptors: protoregistry.GlobalFiles})
	fmt.Println(err)
	// Output:
	// shop.yaml:4:9: nothing is called "tenent" here: did you mean "tenant"? There are: attempt, caller_kind, caller_name, caller_node, deadline, metadata, method, now, peer, request, service, tenant
}

// A file that names WebAssembly modules carries their code when it is applied.
func ExampleInline() {
	text := "policies: [{name: house, wasm: {module: house.wasm}}]"
	packed, err := policy.Inline("shop.yaml", []byte(text), func(string) ([]byte, error) {
		return []byte("\x00asm\x01\x00\x00\x00"), nil
	})
	fmt.Println(string(packed[:37]), err)
	// Output:
	// policies: [{name: house, wasm: {code: <nil>
}
