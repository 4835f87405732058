#!/bin/sh
# Makes inference.pb.go with the generator that go.mod names. The line with the version
# of protoc is left out: it differs from one Debian to the next.
set -eu
plugin=$(mktemp)
trap 'rm -f "$plugin"' EXIT
go build -o "$plugin" google.golang.org/protobuf/cmd/protoc-gen-go
protoc --plugin=protoc-gen-go="$plugin" --go_out=. --go_opt=paths=source_relative inference.proto
sed -i '/^\/\/ 	protoc  */d' inference.pb.go
