package policy

import "gopkg.in/yaml.v3"

func (p *parser) wasm(n *yaml.Node) (rules, error) { return nil, p.src.errorf(n, "not yet") }
