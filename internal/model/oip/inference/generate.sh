#!/bin/sh
# Generates inference.pb.go with the generator that go.mod names. The line with the version of protoc
# is removed, since it differs between releases of Debian.
set -eu
plugin=$(mktemp)
trap 'rm -f "$plugin"' EXIT
go build -o "$plugin" google.golang.org/protobuf/cmd/protoc-gen-go
protoc --plugin=protoc-gen-go="$plugin" --go_out=. --go_opt=paths=source_relative inference.proto
sed -i '/^\/\/ 	protoc  */d' inference.pb.go
