//go:build race

package router

const raced = true
