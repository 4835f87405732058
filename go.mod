module github.com/outboard-run/outboard

go 1.26
