//go:build !race

package router

const raced = false
